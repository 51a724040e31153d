"""What of a run is published next to its record: its curves, and what it translated."""

import itertools
import math
from pathlib import Path

import pytest
from msgspec.structs import replace

import normlab
from normlab.records.packed import CURVES, Pack
from normlab.records.store import hypotheses_splits, read_hypotheses, read_record
from normlab.reports.published import publish, rendered
from normlab.reports.runs import rows_of_run, thinned
from normlab.train.loaded import rescored
from tests.reports.tables import diverged, kept_run, made, planned, run_rows, runs, study
from tests.tasks.sentences import translation


def training(count, step=10):
    return [{"step": step * n, "train/loss": 1 / n} for n in range(1, count + 1)]


def steps(rows):
    return [row["step"] for row in rows]


def test_few_rows_are_all_kept_without_what_no_curve_shows():
    kept = thinned(run_rows(1.0))
    assert steps(kept) == steps(run_rows(1.0))
    names = {name for row in kept for name in row}
    assert names == {
        *("step", "tokens", "train/loss", "train/grad_norm"),
        *("stability/tid/mean", "valid/loss", "valid/bleu"),
    }


def test_of_many_rows_about_a_hundred_stay_and_every_validation():
    rows = training(1000)
    validations = [{"step": step, "valid/loss": 2.0} for step in range(7, 10_000, 10)]
    kept = thinned([*rows, *validations])
    assert [row for row in kept if "valid/loss" in row] == validations
    trained = steps(row for row in kept if "train/loss" in row)
    assert 50 <= len(trained) <= 102
    assert trained[0] == 10 and trained[-1] == 10_000
    assert {b - a for a, b in itertools.pairwise(trained[1:-1])} == {160}


@pytest.mark.parametrize("ended", [101, 399, 777])
def test_a_seed_that_ended_early_keeps_the_steps_of_one_that_did_not(ended):
    whole, short = steps(thinned(training(1000))), steps(thinned(training(ended)))
    shared = {step for step in whole if 10 < step < 10 * ended}
    assert shared <= set(short)


def published_one(tmp_path: Path, folder: Path, record=None) -> Path:
    """Publish one run and return its address."""
    run = (planned("ln", 1), record or made("ln", 1, {"test/bleu": 1.0}))
    of = Pack(publish(tmp_path / "results", study(), "smoke", [run], folders=[folder]))
    (key,) = of.records
    return of.address(key)


def test_numbers_are_shortened_and_read_back(tmp_path):
    rows = [{"step": 3, "tokens": 1234567, "train/loss": 1.23456789, "valid/loss": math.inf}]
    folder = kept_run(tmp_path / "run", [*rows, {"step": 4, "train/loss": math.nan}])
    first, last = rows_of_run(published_one(tmp_path, folder))
    assert first == {"step": 3, "tokens": 1234567, "train/loss": 1.23457, "valid/loss": math.inf}
    assert math.isnan(last["train/loss"])


def test_curves_go_with_their_records(tmp_path):
    pairs = [(planned("ln", seed), made("ln", seed, {"test/bleu": 1.0})) for seed in (1, 2)]
    places = [kept_run(tmp_path / str(n), run_rows(n)) for n in (1, 2)]
    folder = publish(tmp_path, study(), "smoke", pairs, folders=places)
    assert [key.seed for key in Pack(folder).curves] == [1, 2]
    publish(tmp_path, study(), "smoke", pairs[:1], folders=places[:1])
    assert [key.seed for key in Pack(folder).curves] == [1]
    publish(tmp_path, study(), "smoke", pairs[:1])
    assert not (folder / CURVES).exists()
    assert "without the rows" in rendered(study(), folder)[folder / "report.html"]


def test_the_curves_of_published_runs_are_those_of_a_table_and_of_figures(tmp_path):
    pairs = [(planned("ln", seed), made("ln", seed, {"test/bleu": 1.0})) for seed in (1, 2)]
    places = [kept_run(tmp_path / str(n), run_rows(n)) for n in (1, 2)]
    found = normlab.records(publish(tmp_path, study(), "smoke", pairs, folders=places))
    frame = found.curves("train/loss", "valid/loss")
    for seed, place in zip((1, 2), found.folders, strict=True):
        rows = thinned(run_rows(seed))
        assert rows_of_run(place) == rows
        assert frame[frame["seed"] == seed]["step"].tolist() == sorted(set(steps(rows)))
    assert found.plot("loss")._repr_svg_().startswith("<?xml")


def test_damaged_rows_of_a_run_stop_before_anything_is_written(tmp_path):
    place = kept_run(tmp_path / "run", run_rows(1.0))
    (place / "metrics.jsonl").write_text("{\n{}\n")
    with pytest.raises(ValueError, match=r"metrics\.jsonl, line 1: damaged"):
        publish(tmp_path / "out", study(), "smoke", runs({"ln": [1.0]}), folders=[place])
    assert not (tmp_path / "out").exists()


# Translations -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def task():
    return translation()


@pytest.fixture
def run(task, tmp_path: Path):
    """Return a run's folder, whose translations lack a word each, and its record."""
    lines = [line.replace(" the", "", 1) for line in task.data.texts["test"].target]
    folder = kept_run(tmp_path / "run", run_rows(1.0))
    (folder / "hypotheses.txt").write_text("".join(f"{line}\n" for line in lines))
    scores = {f"test/{name}": score for name, score in task.score_lines("test", lines).items()}
    return folder, replace(made("ln", 1), scores=scores)


def test_bleu_of_what_is_published_is_that_of_the_record(task, run, tmp_path: Path):
    folder, record = run
    place = published_one(tmp_path, folder, record)
    found, kept = rescored(place, task), read_record(place).scores
    assert found == kept and 0 < found["test/bleu"].value < 100
    assert found["test/length_ratio"].value < 1


def test_each_test_split_is_published_as_long_as_it_is_there(run, tmp_path: Path):
    folder, record = run
    (folder / "hypotheses-test_2017.txt").write_text("one line\n")
    place = published_one(tmp_path, folder, record)
    assert hypotheses_splits(place) == ["test", "test_2017"]
    assert read_hypotheses(place, "test_2017") == ["one line"]
    (folder / "hypotheses.txt").rename(folder / "hypotheses-test_odd.txt")
    assert hypotheses_splits(published_one(tmp_path, folder, record)) == ["test_2017", "test_odd"]


def test_a_run_that_was_not_tested_publishes_no_translations(task, run, tmp_path: Path):
    folder, record = run
    place = published_one(tmp_path, folder, diverged(record, 45))
    assert hypotheses_splits(place) == []
    with pytest.raises(ValueError, match=r"keeps no hypotheses\.txt"):
        rescored(place, task)
