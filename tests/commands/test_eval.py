"""`normlab eval`: the scores of a finished run, again or under other settings."""

import json
from pathlib import Path

import pytest

from normlab.cli import main
from normlab.records.store import RunStore
from tests.tiny_runs import Kill, run, tiny, write_corpus


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of runs with one of batch norm, finished."""
    folder = tmp_path_factory.mktemp("finished")
    corpus = write_corpus(folder / "text")
    ended = run(
        ["train", *tiny(corpus, folder / "runs", "norm=bn", "norm.momentum=0.01")], folder / "log"
    )
    assert ended.status == 0, ended.output
    return folder / "runs"


@pytest.fixture
def finished(runs: Path) -> Path:
    (record,) = runs.rglob("record.json")
    return record.parent


def evaluated(folder: Path, *arguments: str, capsys) -> dict:
    capsys.readouterr()
    assert main(["eval", str(folder), *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_scores_are_those_of_the_record(finished: Path, capsys):
    record = RunStore(finished).read(finished)
    found = evaluated(finished, capsys=capsys)
    assert set(found) == {name for name in record.scores if name.startswith("test/")}
    for name, score in found.items():
        assert score["value"] == record.scores[name].value
        assert score["signature"] == record.scores[name].signature


def test_another_split_is_scored(finished: Path, capsys):
    record = RunStore(finished).read(finished)
    found = evaluated(finished, "--split", "valid", capsys=capsys)
    assert found["valid/loss"]["value"] == record.scores["valid/loss"].value


@pytest.mark.parametrize("mode", ["batch", "recalibrated"])
def test_another_mode_of_statistics_scores_differently(mode: str, finished: Path, capsys):
    running = evaluated(finished, capsys=capsys)
    other = evaluated(finished, f"norm.eval_stats={mode}", capsys=capsys)
    assert abs(other["test/loss"]["value"] - running["test/loss"]["value"]) > 1e-3


def test_batch_size_matters_where_the_batch_gives_the_statistics_and_only_there(
    finished: Path, capsys
):
    def loss(*changes: str) -> float:
        return evaluated(finished, *changes, capsys=capsys)["test/loss"]["value"]

    assert loss("task.eval_batch_size=2") == pytest.approx(loss(), rel=1e-5)
    by_batch = "norm.eval_stats=batch"
    assert abs(loss(by_batch, "task.eval_batch_size=2") - loss(by_batch)) > 1e-4


def test_outputs_are_written_and_the_run_is_left_as_it_is(finished: Path, tmp_path: Path, capsys):
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    outputs = tmp_path / "out.en"
    evaluated(finished, "--outputs", str(outputs), capsys=capsys)
    assert outputs.read_bytes() == before[finished / "hypotheses.txt"]
    assert {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()} == before


def test_the_table_has_the_record_beside_it(finished: Path, capsys):
    assert main(["eval", str(finished), "task.test_search.beam=1"]) == 0
    captured = capsys.readouterr()
    assert "test/bleu" in captured.out
    assert "record: " in captured.out
    assert "task.test_search.beam=1" in captured.err


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["norm.stats=batch"], ["norm.stats=batch"]),
        (["norm.eval_stats=never"], ["norm.eval_stats", "running", "batch", "recalibrated"]),
        (["task.test_search.beam=two"], ["task.test_search.beam", "two", "int"]),
        (["beam"], ["beam", "key=value"]),
        (["--split", "dev"], ["dev", "test", "valid"]),
    ],
)
def test_what_does_not_fit_is_one_clear_line(
    arguments: list[str], parts: list[str], finished: Path, capsys
):
    assert main(["eval", str(finished), *arguments]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert all(part in error for part in parts), error


def test_a_folder_without_a_run_is_named(tmp_path: Path, capsys):
    assert main(["eval", str(tmp_path / "nothing")]) == 1
    error = capsys.readouterr().err
    assert str(tmp_path / "nothing") in error
    assert error.count("\n") == 1


def test_a_run_that_was_stopped_before_it_validated_has_nothing_to_score(tmp_path: Path, capsys):
    import signal

    corpus = write_corpus(tmp_path / "text")
    stop = Kill("normlab.train.loop.Trainer.step", 2, "before", signal.SIGTERM)
    ended = run(["train", *tiny(corpus, tmp_path / "runs")], tmp_path / "log", stop.install)
    assert ended.status == 130, ended.output
    (record,) = (tmp_path / "runs").rglob("record.json")
    assert main(["eval", str(record.parent)]) == 1
    assert "best.pt" in capsys.readouterr().err
