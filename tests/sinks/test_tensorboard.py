"""What TensorBoard itself reads from the files: curves without doubles, the config."""

import pytest

from normlab.cli import main
from normlab.train import tensorboard as sink
from tests.sinks.runs import info, record, scores


@pytest.fixture
def read():
    pytest.importorskip("tensorboard", reason="the tensorboard extra is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def read(run_dir):
        found = EventAccumulator(str(run_dir / sink.FOLDER), size_guidance={"scalars": 0})
        return found.Reload()

    return read


def curve(found, name):
    return [(event.step, event.value) for event in found.Scalars(name)]


def test_a_killed_run_that_goes_on_has_each_step_once(tmp_path, read):
    killed = sink.TensorBoard()
    killed.open(info(tmp_path))
    for step in range(1, 6):
        killed.log({"step": step, "train/loss": float(step)}, scores(float(step), 2.0))
    found = read(tmp_path)  # never closed: what was logged is there
    assert [step for step, _ in curve(found, "train/loss")] == [1, 2, 3, 4, 5]

    resumed = sink.TensorBoard()
    resumed.open(info(tmp_path, resumed_step=3))
    for step in (4, 5, 6):
        resumed.log({"step": step, "train/loss": step + 0.5})
    resumed.close(record())
    for reader in (read(tmp_path), found.Reload()):  # anew, and by one that was looking on
        expected = [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.5), (5, 5.5), (6, 6.5)]
        assert curve(reader, "train/loss") == expected
        assert curve(reader, "valid/bleu") == [(1, 1.0), (2, 2.0), (3, 3.0)]
        assert curve(reader, "test/bleu") == [(100, pytest.approx(23.456))]
    config = found.Tensors("config/text_summary")[0].tensor_proto.string_val[0].decode()
    assert '"batch_size": 32' in config


def test_without_the_package_it_says_what_to_install(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sink, "find_spec", lambda name: None)
    given = ("task=toy", "scale=smoke", "sink=[tensorboard]", "device=cpu")
    assert main(["train", *given, f"runs_dir={tmp_path}"]) == 1
    assert ".[tensorboard]" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
