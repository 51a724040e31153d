"""What of a run is published next to its record: its curves, and what it translated."""

import gzip
import itertools
import json
import math
from pathlib import Path

import pytest
from msgspec.structs import replace

import normlab
from normlab.records.store import packed_hypotheses, read_hypotheses, read_record
from normlab.reports.published import publish, rendered
from normlab.reports.runs import (
    CURVES_FILE,
    curves_text,
    published_curves,
    read_curves,
    rows_of_run,
    thinned,
)
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


def test_numbers_are_shortened_and_read_back(tmp_path):
    rows = [{"step": 3, "tokens": 1234567, "train/loss": 1.23456789, "valid/loss": math.inf}]
    text = curves_text(thinned([*rows, {"step": 4, "train/loss": math.nan}]))
    assert text.splitlines()[0] == (
        '{"step": 3, "tokens": 1234567, "train/loss": 1.23457, "valid/loss": "inf"}'
    )
    (tmp_path / CURVES_FILE).write_text(text)
    back = read_curves(tmp_path / CURVES_FILE)
    assert back[0]["valid/loss"] == math.inf and math.isnan(back[1]["train/loss"])


def test_a_run_without_rows_has_no_curves(tmp_path):
    assert published_curves(tmp_path / "none") is None
    assert published_curves(kept_run(tmp_path, [])) is None
    assert read_curves(tmp_path / CURVES_FILE) == []


def curves(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob(CURVES_FILE))


def test_curves_lie_beside_their_records_and_go_with_them(tmp_path):
    pairs = [(planned("ln", seed), made("ln", seed, {"test/bleu": 1.0})) for seed in (1, 2)]
    places = [kept_run(tmp_path / str(n), run_rows(n)) for n in (1, 2)]
    folder = publish(tmp_path, study(), "smoke", pairs, folders=places)
    assert [path.rsplit("/", 2)[1:] for path in curves(folder)] == [
        [f"seed{seed}", CURVES_FILE] for seed in (1, 2)
    ]
    publish(tmp_path, study(), "smoke", pairs[:1], folders=places[:1])
    assert len(curves(folder)) == 1
    publish(tmp_path, study(), "smoke", pairs[:1])
    assert curves(folder) == []
    assert "without the rows" in rendered(study(), folder)[folder / "report.html"]


def test_the_curves_of_published_runs_are_those_of_a_table_and_of_figures(tmp_path):
    pairs = [(planned("ln", seed), made("ln", seed, {"test/bleu": 1.0})) for seed in (1, 2)]
    places = [kept_run(tmp_path / str(n), run_rows(n)) for n in (1, 2)]
    folder = publish(tmp_path, study(), "smoke", pairs, folders=places)
    found = normlab.records(folder / "records")
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


def test_damaged_curves_are_named(tmp_path):
    place = kept_run(tmp_path / "run", run_rows(1.0))
    folder = publish(tmp_path, study(), "smoke", runs({"ln": [1.0]}), folders=[place])
    path = next(folder.rglob(CURVES_FILE))
    path.write_text(json.dumps({"step": "one"}) + "\n" + path.read_text())
    with pytest.raises(ValueError, match=r"curves\.jsonl, line 1: damaged curves; restore them"):
        rendered(study(), folder)


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


def published(tmp_path: Path, folder: Path, record) -> Path:
    at = publish(
        tmp_path / "results", study(), "smoke", [(planned("ln", 1), record)], folders=[folder]
    )
    (path,) = at.rglob("record.json")
    return path.parent


def test_bleu_of_what_is_published_is_that_of_the_record(task, run, tmp_path: Path):
    folder, record = run
    place = published(tmp_path, folder, record)
    assert not (place / "hypotheses.txt").exists()
    found, kept = rescored(place, task), read_record(place / "record.json").scores
    assert found == kept and 0 < found["test/bleu"].value < 100
    assert found["test/length_ratio"].value < 1


def test_equal_translations_are_equal_bytes_without_name_and_time(run):
    folder, _ = run
    (packed,) = packed_hypotheses(folder).values()
    assert gzip.decompress(packed) == (folder / "hypotheses.txt").read_bytes()
    assert packed[:10] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff"  # no flag, time 0
    assert list(packed_hypotheses(folder).values()) == [packed]


def test_each_test_split_has_a_file_of_its_own(run, tmp_path: Path):
    folder, record = run
    (folder / "hypotheses-test_2017.txt").write_text("one line\n")
    place = published(tmp_path, folder, record)
    names = {path.name for path in place.glob("hypotheses*")}
    assert names == {"hypotheses.txt.gz", "hypotheses-test_2017.txt.gz"}
    assert read_hypotheses(place, "test_2017") == (
        place / "hypotheses-test_2017.txt.gz",
        ["one line"],
    )


def test_what_is_no_longer_there_to_be_published_goes(run, tmp_path: Path):
    folder, record = run
    place = published(tmp_path, folder, record)
    (folder / "hypotheses.txt").rename(folder / "hypotheses-test_odd.txt")
    published(tmp_path, folder, record)
    assert {path.name for path in place.glob("hypotheses*")} == {"hypotheses-test_odd.txt.gz"}


def test_a_run_that_was_not_tested_publishes_no_translations(run, tmp_path: Path):
    folder, record = run
    place = published(tmp_path, folder, diverged(record, 45))
    assert not list(place.glob("hypotheses*"))


def test_damaged_and_missing_translations_are_named(task, run, tmp_path: Path):
    folder, record = run
    place = published(tmp_path, folder, record)
    path = place / "hypotheses.txt.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"hypotheses\.txt\.gz: damaged"):
        read_hypotheses(place)
    path.unlink()
    with pytest.raises(ValueError, match=r"keeps no hypotheses\.txt"):
        rescored(place, task)
