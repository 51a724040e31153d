"""What TensorBoard itself reads from the files: curves without duplicates, and the config."""

import pytest

from normlab.cli import main
from normlab.records.record import Score
from normlab.training import tensorboard as sink
from tests.training.sink_runs import CHOICES, CONFIG, info, record, scores


@pytest.fixture
def read():
    pytest.importorskip("tensorboard", reason="the tensorboard extra is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def read(run_dir, below=""):
        found = EventAccumulator(str(run_dir / sink.FOLDER / below), size_guidance={"scalars": 0})
        return found.Reload()

    return read


def curve(found, name):
    return [(event.step, event.value) for event in found.Scalars(name)]


def test_a_killed_and_resumed_run_has_each_step_once(tmp_path, read):
    killed = sink.TensorBoard()
    killed.open(info(tmp_path))
    for step in range(1, 6):
        killed.log({"step": step, "train/loss": float(step)}, scores(float(step), 2.0))
    found = read(tmp_path)  # the run was not closed, but its rows are there
    assert [step for step, _ in curve(found, "train/loss")] == [1, 2, 3, 4, 5]

    resumed = sink.TensorBoard()
    resumed.open(info(tmp_path, resumed_step=3))
    for step in (4, 5, 6):
        resumed.log({"step": step, "train/loss": step + 0.5})
    resumed.close(record())
    for reader in (read(tmp_path), found.Reload()):  # by a new reader, and by an open one
        expected = [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.5), (5, 5.5), (6, 6.5)]
        assert curve(reader, "train/loss") == expected
        assert curve(reader, "valid/bleu") == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert curve(read(tmp_path, sink.SCORES), "test/bleu") == [(100, pytest.approx(23.456))]
    config = found.Tensors("config/text_summary")[0].tensor_proto.string_val[0].decode()
    assert '"batch_size": 32' in config


def test_the_hparams_tab_lists_the_axes_of_a_sweep_first_and_only_final_scores(tmp_path, read):
    from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
    from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
    from tensorboard.context import RequestContext
    from tensorboard.plugins.base_plugin import TBContext
    from tensorboard.plugins.hparams.backend_context import Context

    for norm, size in (("bn", 8), ("bn", 32), ("ln", 8), ("ln", 32)):
        choices = {**CHOICES, "norm": norm}
        config = {**CONFIG, "norm": {"option": norm}, "batch_size": size, "choices": choices}
        run = sink.TensorBoard()
        run.open(info(tmp_path / f"{norm}{size}", config=config))
        run.log({"step": 1, "train/loss": 1.0}, scores(1.0, 2.0))
        run.close(record(scores={**record().scores, "test/length_ratio": Score(1.0, False, 1)}))
    events = EventMultiplexer().AddRunsFromDirectory(str(tmp_path)).Reload()
    board = Context(TBContext(data_provider=MultiplexerDataProvider(events, str(tmp_path))))
    request = RequestContext()
    written = board.hparams_metadata(request, "")
    found = board.experiment_from_metadata(request, "", True, written, None)
    names = [each.name for each in found.hparam_infos]
    assert names[:2] == ["batch_size", "norm"]
    assert [each.differs for each in found.hparam_infos[:3]] == [True, True, False]
    assert {"seed", "optim.lr", "budget.steps"} <= {*names}
    assert [metric.name.tag for metric in found.metric_infos] == ["test/bleu"]


def test_the_error_without_tensorboard_says_what_to_install(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sink, "find_spec", lambda name: None)
    given = ("task=toy", "scale=smoke", "sink=[tensorboard]", "device=cpu")
    assert main(["train", *given, f"runs_dir={tmp_path}"]) == 1
    assert ".[tensorboard]" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
