"""What the tested weights translated is published beside the record, and scores the same again."""

import gzip
from pathlib import Path

import pytest
from msgspec.structs import replace

from normlab.records.hypotheses import packed_hypotheses, read_hypotheses
from normlab.records.store import read_record
from normlab.reports.published import publish
from normlab.train.loaded import rescored
from tests.reports.pages import diverged, kept_run, run_rows
from tests.reports.tables import made, planned, study
from tests.tasks.sentences import translation


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
