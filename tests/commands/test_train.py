"""`normlab train`: messages of bad input, sweeps, the last line."""

import shutil
import sys
from pathlib import Path

import pytest

from normlab.cli import main
from normlab.commands.train import INTERRUPTED
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
    "heads that do not divide": (["model.num_heads=3"], ["3", "16"]),
    "max_tokens below a sentence": (
        ["batch_size=null", "max_tokens=10"],
        ["max_tokens=10", "task.max_length"],
    ),
    "recalibration": (
        ["norm=bn", "norm.eval_stats=recalibrated", "validate.recalibration_batches=0"],
        ["validate.recalibration_batches=0"],
    ),
    "value of an optimizer": (["optim.betas=[2.0,3.0]"], ["optim", "beta"]),
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


def test_a_damaged_checkpoint_is_one_clear_line(copied, corpus, tmp_path, carry_out):
    (copied / "record.json").unlink()
    last = copied / "checkpoints" / "last.pt"
    damaged = last.read_bytes()[:1000]
    last.write_bytes(damaged)
    ended = carry_out("train", *tiny(corpus, tmp_path / "runs", *SAME))
    assert_clear(ended, str(last), "damaged", "remove the file")
    assert last.read_bytes() == damaged


@pytest.mark.parametrize("damage", ["{", '{"format": "normlab.record/9"}'])
def test_a_damaged_record_is_one_clear_line(damage, copied, corpus, tmp_path, carry_out):
    record = copied / "record.json"
    record.write_text(damage)
    assert_clear(carry_out("train", *tiny(corpus, tmp_path / "runs", *SAME)), str(record))
    assert record.read_text() == damage


def test_the_last_line_says_outcome_and_scores(copied: Path, corpus: Path, tmp_path, carry_out):
    ended = carry_out("train", *tiny(corpus, tmp_path / "runs", *SAME))
    assert ended.status == 0
    (line,) = ended.output.splitlines()
    assert all(x in line for x in ("translation-bn-pre-", "finished at step 12", "test/bleu"))


def test_cfg_job_shows_the_config_and_trains_nothing(corpus, tmp_path, carry_out):
    ended = carry_out("train", *tiny(corpus, tmp_path / "runs", "norm=bn"), "--cfg", "job")
    assert ended.status == 0 and "padding: exclude" in ended.output
    assert not (tmp_path / "runs").exists()


@pytest.fixture
def swept(tmp_path: Path, carry_out, monkeypatch):
    """Return a function that sweeps with a shell script for Python, and returns its calls too."""

    def sweep(ends: str, *argv: str) -> tuple[Ended, list[str]]:
        stand_in, log = tmp_path / "python", tmp_path / "calls"
        stand_in.write_text(f'#!/bin/sh\necho "$@" >> {log}\n{ends}\n', encoding="utf-8")
        stand_in.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(stand_in))
        ended = carry_out("train", "-m", *argv, f"runs_dir={tmp_path / 'runs'}")
        return ended, log.read_text(encoding="utf-8").splitlines() if log.exists() else []

    return sweep


def test_a_crashed_run_costs_only_itself(swept):
    crash = 'case "$*" in *norm=bn*) kill -9 $$ ;; *norm=rms*) exit 3 ;; esac'
    ended, calls = swept(crash, "norm=ln,bn,rms")
    assert ended.status == 1 and len(calls) == 3
    assert all(call.startswith("-m normlab train ") for call in calls)
    assert "1 of 3 runs done" in ended.output
    assert "failed with status -9: norm=bn" in ended.output
    assert "failed with status 3: norm=rms" in ended.output


def test_an_interrupted_run_ends_the_sweep(swept):
    ended, calls = swept(f"exit {INTERRUPTED}", "norm=ln,bn", "observe.processes=1")
    assert ended.status == INTERRUPTED and len(calls) == 1


def test_an_option_that_does_not_exist_fails_before_any_run(swept):
    ended, calls = swept("", "norm=ln,batch")
    assert ended.status == 1 and calls == []
    assert "batch" in ended.output and "Traceback" not in ended.output


def test_a_real_sweep_skips_what_is_finished_and_lists_what_failed(
    copied, corpus, tmp_path, carry_out
):
    before = (copied / "record.json").stat().st_mtime_ns
    ended = carry_out("train", "-m", *tiny(corpus, tmp_path / "runs", *SAME, "accumulate=1,0"))
    assert ended.status == 1 and "Traceback" not in ended.output, ended.output
    assert "1 of 2 runs had already ended and are skipped" in ended.output
    assert "0 of 1 runs done" in ended.output and "accumulate=0 must be above 0" in ended.output
    assert (copied / "record.json").stat().st_mtime_ns == before
