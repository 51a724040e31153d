"""A run belongs to its data: every use compares the checksums, and reports what has changed."""

import json
import os
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from msgspec import structs

from normlab.cli import main
from normlab.config.compose import compose
from normlab.config.run_config import to_dict
from normlab.data import cache
from normlab.data.cache import file_checksum, known_checksum
from normlab.data.python_docs import PydocCorpus
from normlab.records.record import RunRecord
from normlab.records.store import read_record
from normlab.studies.study import Planned
from normlab.studies.study_runs import runs_of
from normlab.tasks.translation import Translation
from normlab.training import train
from normlab.training.checkpoint import load_checkpoint
from normlab.training.data_changes import changed_data, check_data
from normlab.training.loaded_run import load_run
from tests.test_architecture import loaded_after
from tests.tiny_runs import QUICK, tiny, write_corpus

SHORT = (*QUICK, "budget.steps=2", "validate.every=2", "norm=ln")
OTHER = r"was trained on different data: (train\.de, )?.*differ"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a text in `text`, and a run trained on it in `runs`."""
    folder = tmp_path_factory.mktemp("trained")
    write_corpus(folder / "text")
    train(compose(overrides(folder)))
    return folder


@pytest.fixture
def copied(trained: Path, tmp_path: Path) -> Path:
    """Return a copy of the folder `trained`, whose files may be changed."""
    return shutil.copytree(trained, tmp_path / "copied")


def overrides(folder: Path, *more: str, text: str = "text") -> list[str]:
    return tiny(folder / text, folder / "runs", *SHORT, *more)


def run_in(folder: Path) -> Path:
    return next((folder / "runs").rglob("record.json")).parent


def test_the_documentation_of_another_python_version_is_different_data():
    config = to_dict(compose(["task=lm", "task/corpus=pydoc"]))
    record = Mock(spec=RunRecord, data={"label": PydocCorpus.label, "checksums": {}})
    assert changed_data(record, config) == []
    record.data["label"] = "documentation of Python 3.10.1"
    assert changed_data(record, config) == [f"{record.data['label']} (here: {PydocCorpus.label})"]


def test_a_finished_run_is_not_reused_after_its_text_was_rewritten_in_place(copied: Path):
    write_corpus(copied / "text", seed=2)
    with pytest.raises(ValueError, match=OTHER) as refused:
        train(compose(overrides(copied)))
    assert f"data_dir={copied / 'text'}" in str(refused.value) and "name=NAME" in str(refused.value)
    with pytest.raises(ValueError, match=OTHER):
        load_run(run_in(copied), [f"data_dir={copied / 'text'}"])
    own = train(compose(overrides(copied, "name=own")))
    assert own.data["files"]["train.de"] == file_checksum(copied / "text" / "train.de")


def test_a_relative_data_dir_is_resolved_from_the_current_folder(
    copied: Path, monkeypatch: pytest.MonkeyPatch
):
    write_corpus(copied / "b" / "text", seed=3)
    argv = ["data_dir=text" if x.startswith("data_dir=") else x for x in overrides(copied)]
    monkeypatch.chdir(copied)
    assert train(compose(argv)).outcome.status == "finished"
    monkeypatch.chdir(copied / "b")
    with pytest.raises(ValueError, match=OTHER):
        train(compose(argv))


def test_a_text_that_was_moved_or_has_crlf_line_ends_is_the_same_text(copied: Path):
    moved = (copied / "text").rename(copied / "moved")
    assert train(compose(overrides(copied, text="moved"))).outcome.status == "finished"
    with pytest.raises(ValueError, match=r"data cannot be compared.*text is not a folder"):
        train(compose(overrides(copied)))
    (moved / "train.de").write_bytes((moved / "train.de").read_bytes().replace(b"\n", b"\r\n"))
    assert train(compose(overrides(copied, text="moved"))).outcome.status == "finished"


def test_a_trained_model_translates_without_its_training_text(
    copied: Path, monkeypatch: pytest.MonkeyPatch
):
    lines = ["der Mann sieht den Hund im Garten.", "ein Wort"]
    run = load_run(run_in(copied))
    assert isinstance(run.task, Translation)
    before = run.task.translate(run.model, lines)
    alone = load_run(run_in(copied), ["data_dir=/nowhere"], data=False)
    assert isinstance(alone.task, Translation)
    assert alone.task.translate(alone.model, lines) == before
    (run_in(copied) / "vocabulary" / "source.json").write_text("{}")
    with pytest.raises(ValueError, match="vocabulary is missing or damaged"):
        load_run(run_in(copied), data=False)


def test_a_run_is_scored_only_with_its_own_vocabulary(copied: Path):
    path = run_in(copied) / "vocabulary" / "source.json"
    path.write_text(path.read_text() + " ")
    with pytest.raises(ValueError, match=r"vocabulary is missing or damaged; copy it from another"):
        load_run(run_in(copied))
    last = run_in(copied) / "checkpoints" / "last.pt"
    torch.save({**load_checkpoint(last), "vocabulary": "another"}, last)
    with pytest.raises(ValueError, match="a different vocabulary"):
        load_run(run_in(copied))


def test_the_advice_for_changed_data_suits_the_task(copied: Path):
    run = load_run(run_in(copied))
    data = {"checksums": {"train.de": "another"}}
    for files, advice in (({"train.de": "x"}, "set data_dir=FOLDER"), ({}, "omit settings that")):
        record = structs.replace(run.record, data={**data, "files": files})
        with pytest.raises(ValueError, match=advice):
            check_data(run_in(copied), record, run.task, run.config)


def test_kept_translations_are_not_scored_against_another_text(
    copied: Path, capsys: pytest.CaptureFixture[str]
):
    write_corpus(copied / "text", seed=2)
    assert main(["eval", str(run_in(copied)), "--kept", f"data_dir={copied / 'text'}"]) == 1
    assert "was trained on different data" in capsys.readouterr().err


def test_start_from_refuses_weights_with_another_vocabulary(copied: Path):
    write_corpus(copied / "other", seed=5, train=30)
    with pytest.raises(ValueError, match=r"start_from=.* has a different vocabulary"):
        train(compose(overrides(copied, f"start_from={run_in(copied)}", text="other")))


def test_a_study_repeats_a_run_whose_text_has_changed(copied: Path):
    record = read_record(run_in(copied))
    (run,) = runs_of([Planned("row", "", 1, tuple(overrides(copied)))])
    assert run.has_ended(record)
    write_corpus(copied / "text", seed=2)
    assert not run.has_ended(record)
    shutil.rmtree(copied / "text")
    assert run.has_ended(record)  # without the text nothing contradicts the record


def test_returning_a_finished_run_does_not_import_torch(copied: Path):
    argv = json.dumps(overrides(copied))
    code = f"from normlab import compose, train\ntrain(compose({argv}))"
    assert "torch" not in loaded_after(code)


def test_the_checksum_of_a_large_file_is_computed_once_until_the_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path, hashed = tmp_path / "large", []
    monkeypatch.setattr(cache, "_LARGE", 4)
    monkeypatch.setattr(cache, "_SETTLED", -1.0)
    monkeypatch.setattr(cache, "file_checksum", lambda x: hashed.append(x) or file_checksum(x))
    path.write_text("as it was")
    first = known_checksum(path)
    assert known_checksum(path) == first == file_checksum(path) and len(hashed) == 1
    stat = path.stat()
    path.write_text("as it is!")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert known_checksum(path) == file_checksum(path) != first
