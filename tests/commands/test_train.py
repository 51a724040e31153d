"""`normlab train`: messages of bad input, sweeps, the last line."""

import shutil
import sys
from pathlib import Path

import pytest

from normlab.cli import main
from tests.commands.conftest import FINISHED as SAME
from tests.tiny_runs import Ended, tiny


@pytest.fixture
def carry_out(capsys, monkeypatch):
    """Return a function that carries out a command in this process."""

    def carried_out(*argv: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["normlab"])
        monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
        capsys.readouterr()
        try:
            status = main([*argv])
        except SystemExit as exit_:
            status = int(exit_.code or 0)
        captured = capsys.readouterr()
        return Ended(status, captured.out + captured.err)

    return carried_out


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    """Return the folder of a copy of the finished run, in `tmp_path/runs`."""
    folder = tmp_path / "runs" / finished.parent.name / finished.name
    return shutil.copytree(finished, folder)


def assert_clear(ended: Ended, *parts: str) -> None:
    """One line that says everything, and a status that says that it failed."""
    assert ended.status not in (0, None) and "Traceback" not in ended.output, ended.output
    (line,) = (line for line in ended.output.splitlines() if line.strip())
    assert line.startswith("normlab train: ") and all(part in line for part in parts), line


BAD = {
    "unknown option of a site": (["norm@decoder_norm=batch"], ["batch", "bn"]),
    "groups that do not divide": (["norm=gn", "norm.groups=7"], ["groups", "7", "16"]),
    "max_tokens below a sentence": (
        ["batch_size=null", "max_tokens=10"],
        ["max_tokens=10", "task.max_length"],
    ),
    "recalibration": (
        ["norm=bn", "norm.eval_stats=recalibrated", "validate.recalibration_batches=0"],
        ["validate.recalibration_batches=0"],
    ),
    "data_dir that is not there": (["data_dir=/no/such/place"], ["/no/such/place"]),
    "a GPU where there is none": (["device=cuda"], ["device=cuda", "device=cpu"]),
    "positions too few": (["model.max_positions=4"], ["max_positions"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_line(case: str, corpus: Path, tmp_path: Path, carry_out):
    if case == "a GPU where there is none" and __import__("torch").cuda.is_available():
        pytest.skip("there is a GPU here")
    overrides, parts = BAD[case]
    assert_clear(carry_out("train", *tiny(corpus, tmp_path / "runs", *overrides)), *parts)
    left = {path.name for path in (tmp_path / "runs").rglob("*") if path.is_file()}
    assert left <= {".lock"}, left


def test_a_damaged_record_is_one_clear_line(copied, corpus, tmp_path, carry_out):
    record = copied / "record.json"
    record.write_text("{")
    assert_clear(carry_out("train", *tiny(corpus, tmp_path / "runs", *SAME)), str(record))
    assert record.read_text() == "{"


def test_the_last_line_says_outcome_and_scores(copied: Path, corpus: Path, tmp_path, carry_out):
    ended = carry_out("train", *tiny(corpus, tmp_path / "runs", *SAME))
    assert ended.status == 0
    (line,) = ended.output.splitlines()
    assert all(x in line for x in ("translation-bn-pre-", "finished at step 12", "test/bleu"))


def test_cfg_job_shows_the_config_and_trains_nothing(corpus, tmp_path, carry_out):
    ended = carry_out("train", *tiny(corpus, tmp_path / "runs", "norm=bn"), "--cfg", "job")
    assert ended.status == 0 and "padding: exclude" in ended.output
    assert not (tmp_path / "runs").exists()


def test_an_option_that_does_not_exist_fails_before_any_run(tmp_path, carry_out):
    ended = carry_out("train", "-m", "norm=ln,batch", f"runs_dir={tmp_path}")
    assert_clear(ended, "batch")
    assert not list(tmp_path.rglob("log.txt"))


def test_a_real_sweep_skips_what_is_finished_and_lists_what_failed(
    copied, corpus, tmp_path, carry_out
):
    before = (copied / "record.json").stat().st_mtime_ns
    *words, last = tiny(corpus, tmp_path / "runs", *SAME, "accumulate=1,0")
    settings = tmp_path / "my.yaml"
    settings.write_text(words.pop().replace("=", ": ") + "\n")
    ended = carry_out("train", "-m", str(settings), *words, last)
    assert ended.status == 1 and "Traceback" not in ended.output, ended.output
    assert "1 of 2 runs had already ended and are skipped" in ended.output
    assert "0 of 1 runs done" in ended.output and "accumulate=0 must be above 0" in ended.output
    assert (copied / "record.json").stat().st_mtime_ns == before
