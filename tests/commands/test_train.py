"""`normlab train`: messages of bad input, sweeps, the last line, the help page."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from normlab.cli import main
from normlab.commands.train import INTERRUPTED
from normlab.config.registry import option_names, run_groups
from tests.tiny_runs import Ended, run, tiny, write_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus") / "text")


@pytest.fixture(scope="module")
def finished(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of runs with a finished run of four steps."""
    folder = tmp_path_factory.mktemp("finished")
    ended = run(["train", *tiny(corpus, folder / "runs", *SHORT)], folder / "log")
    assert ended.status == 0, ended.output
    return folder / "runs"


SHORT = ("norm=bn", "budget.steps=4")


def in_process(argv: list[str], capsys, monkeypatch) -> Ended:
    """Carry out a command here, which is quicker where it fails before it trains."""
    monkeypatch.setattr(sys, "argv", ["normlab"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    capsys.readouterr()
    try:
        status = main(argv)
    except SystemExit as exit_:
        status = int(exit_.code or 0)
    captured = capsys.readouterr()
    return Ended(status, captured.out + captured.err)


def assert_clear(ended: Ended, *parts: str) -> None:
    """One line that says everything, and a status that says that it failed."""
    assert ended.status not in (0, None), ended.output
    assert "Traceback" not in ended.output
    lines = [line for line in ended.output.splitlines() if line.strip()]
    assert len(lines) == 1, ended.output
    assert lines[0].startswith("normlab train: ")
    for part in parts:
        assert part in lines[0]


def assert_nothing_written(runs: Path) -> None:
    left = {path.name for path in runs.rglob("*") if path.is_file()} if runs.exists() else set()
    assert left <= {".lock"}, left


BAD = {
    "unknown key in a group": (["norm.epsilon=1"], ["epsilon"]),
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
    "no data_dir": (["data_dir=null"], ["data_dir"]),
    "unknown probe": (["probe=[gradient]"], ["gradient", "grad_norm"]),
    "a GPU where there is none": (["device=cuda"], ["device=cuda", "device=cpu"]),
    "positions too few": (["model.max_positions=4"], ["max_positions"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_line(case: str, corpus: Path, tmp_path: Path, capsys, monkeypatch):
    if case == "a GPU where there is none" and __import__("torch").cuda.is_available():
        pytest.skip("there is a GPU here")
    overrides, parts = BAD[case]
    ended = in_process(["train", *tiny(corpus, tmp_path / "runs", *overrides)], capsys, monkeypatch)
    assert_clear(ended, *parts)
    assert_nothing_written(tmp_path / "runs")


def copy_of(runs: Path, folder: Path) -> Path:
    shutil.copytree(runs, folder)
    (record,) = folder.rglob("record.json")
    return record.parent


def test_a_damaged_checkpoint_is_one_clear_line(finished: Path, corpus: Path, tmp_path: Path):
    folder = copy_of(finished, tmp_path / "runs")
    (folder / "record.json").unlink()
    last = folder / "checkpoints" / "last.pt"
    damaged = last.read_bytes()[:1000]
    last.write_bytes(damaged)
    argv = ["train", *tiny(corpus, tmp_path / "runs", *SHORT)]
    ended = run(argv, tmp_path / "log")
    assert_clear(ended, str(last), "damaged", "remove the file")
    assert last.read_bytes() == damaged
    last.unlink()  # as the message says
    assert run(argv, tmp_path / "log").status == 0


@pytest.mark.parametrize("damage", ["{", '{"format": "normlab.record/9"}'])
def test_a_damaged_record_is_one_clear_line(
    damage: str, finished: Path, corpus: Path, tmp_path: Path, capsys, monkeypatch
):
    record = copy_of(finished, tmp_path / "runs") / "record.json"
    record.write_text(damage, encoding="latin-1")
    argv = ["train", *tiny(corpus, tmp_path / "runs", *SHORT)]
    ended = in_process(argv, capsys, monkeypatch)
    assert_clear(ended, str(record))
    assert record.read_text(encoding="latin-1") == damage


def test_the_last_line_says_outcome_and_scores(finished: Path, corpus: Path, tmp_path: Path):
    ended = run(["train", *tiny(corpus, finished, *SHORT)], tmp_path / "log")
    assert ended.status == 0
    (line,) = ended.output.splitlines()
    assert "translation-bn-pre-" in line
    assert "finished at step 4 (steps)" in line
    assert "test/bleu" in line


def test_help_names_every_group_and_option(capsys, monkeypatch):
    ended = in_process(["train", "--help"], capsys, monkeypatch)
    assert ended.status == 0
    for group in run_groups():
        assert f"{group}=" in ended.output
        for option in option_names(group):
            assert option in ended.output


def test_cfg_job_shows_the_config_and_trains_nothing(corpus, tmp_path, capsys, monkeypatch):
    argv = ["train", *tiny(corpus, tmp_path / "runs", "norm=bn"), "--cfg", "job"]
    ended = in_process(argv, capsys, monkeypatch)
    assert ended.status == 0
    assert "padding: exclude" in ended.output
    assert not (tmp_path / "runs").exists()


STAND_IN = """#!/bin/sh
echo "$@" >> {log}
case "$*" in
  *norm=bn*) kill -9 $$ ;;
  *norm=rms*) exit 3 ;;
esac
"""


def sweep_with_a_stand_in(script: str, argv: list[str], tmp_path: Path, capsys, monkeypatch):
    """Sweep with a shell script in the place of Python, so that a cell costs nothing."""
    stand_in, log = tmp_path / "python", tmp_path / "calls"
    stand_in.write_text(script.format(log=log), encoding="utf-8")
    stand_in.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stand_in))
    ended = in_process(["train", "-m", *argv], capsys, monkeypatch)
    return ended, log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def test_a_crashed_cell_costs_only_itself(tmp_path: Path, capsys, monkeypatch):
    argv = ["norm=ln,bn,rms", "seed=range(1,3)", f"runs_dir={tmp_path / 'runs'}"]
    ended, calls = sweep_with_a_stand_in(STAND_IN, argv, tmp_path, capsys, monkeypatch)
    assert ended.status == 1
    assert len(calls) == 6
    assert all(call.startswith("-m normlab train ") for call in calls)
    assert "2 of 6 runs done" in ended.output
    for seed in (1, 2):
        assert f"failed with status -9: norm=bn seed={seed}" in ended.output
        assert f"failed with status 3: norm=rms seed={seed}" in ended.output


def test_an_interrupted_cell_ends_the_sweep(tmp_path: Path, capsys, monkeypatch):
    script = f'#!/bin/sh\necho "$@" >> {{log}}\nexit {INTERRUPTED}\n'
    argv = ["norm=ln,bn,none", f"runs_dir={tmp_path / 'runs'}", "observe.processes=1"]
    ended, calls = sweep_with_a_stand_in(script, argv, tmp_path, capsys, monkeypatch)
    assert ended.status == INTERRUPTED
    assert len(calls) == 1


def test_an_option_that_does_not_exist_fails_before_any_cell(tmp_path, capsys, monkeypatch):
    argv = ["norm=ln,batch", f"runs_dir={tmp_path / 'runs'}"]
    ended, calls = sweep_with_a_stand_in(STAND_IN, argv, tmp_path, capsys, monkeypatch)
    assert ended.status == 1
    assert "batch" in ended.output
    assert "Traceback" not in ended.output
    assert calls == []


def test_a_real_sweep_skips_what_is_finished_and_lists_what_failed(
    finished: Path, corpus: Path, tmp_path: Path
):
    folder = copy_of(finished, tmp_path / "runs")
    before = (folder / "record.json").stat().st_mtime_ns
    overrides = tiny(corpus, tmp_path / "runs", *SHORT, "accumulate=1,0")
    command = [sys.executable, "-m", "normlab", "train", "-m", *overrides]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    assert done.returncode == 1, output
    assert "Traceback" not in output
    assert "1 of 2 runs done" in output
    assert "accumulate=0 must be above 0" in output
    assert (folder / "record.json").stat().st_mtime_ns == before
