"""`debug=true` trains three steps, tests one batch of each split, and keeps no files."""

import tempfile

import pytest

from normlab.cli import main
from normlab.config.compose import compose
from normlab.training import train
from tests.tiny_runs import tiny

SMALL = ("task.eval_batch_size=2", "observe.test_seen=50")


@pytest.fixture
def emptied(tmp_path, tmp_path_factory, monkeypatch):
    """Change to an empty folder, and return an empty folder for temporary files."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    # torch makes this folder, in the first test of a process that loads torch._dynamo.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("torch")))
    return folder


def test_a_debug_run_tests_one_batch_and_keeps_nothing(corpus, emptied):
    words = tiny(corpus, emptied.parent / "runs", "wandb.mode=offline", "debug=true", *SMALL)
    record = train(compose(words))
    assert record.outcome.step == 3 and record.outcome.status == "finished"
    assert {record.scores[name].n for name in ("test/bleu", "valid/bleu")} == {2}
    assert {path.name for path in emptied.parent.iterdir()} == {"temporary"}
    assert list(emptied.iterdir()) == []


def test_the_command_line_says_that_nothing_was_kept(corpus, emptied, capsys):
    assert main(["train", *tiny(corpus, emptied.parent / "runs", "debug=true", *SMALL)]) == 0
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.startswith("debug=true: at most 3 steps") and "no files were kept" in said


def test_debug_is_refused_in_sweeps_and_under_torchrun(corpus, emptied, monkeypatch, capsys):
    words = tiny(corpus, emptied.parent / "runs", "debug=true")
    assert main(["train", "-m", *words]) == 1
    assert "debug=true tries one run; omit -m" in capsys.readouterr().err
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["train", *words]) == 1 and "without torchrun" in capsys.readouterr().err
