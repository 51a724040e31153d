"""Parallel runs: how many at once, on which share of the machine, and what happens if one fails."""

import os
import signal
import sys
import textwrap
import threading
import time

import pytest

from normlab.config.machine import usable_cores
from normlab.records.store import PROGRESS_FILE
from normlab.studies.process_pool import (
    LOG_FILE,
    RunsInOrder,
    RunToStart,
    machine_shares,
    run_all,
    visible_gpus,
)
from normlab.studies.runs_display import run_all_shown


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Return a function that runs a shell script in place of the interpreter."""

    def install(script):
        program = tmp_path / "python"
        program.write_text(f"#!/bin/sh\ncd {tmp_path}\n{textwrap.dedent(script)}")
        program.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(program))

    return install


def sweep(folder, *runs, processes=2, **more):
    cells = [RunToStart(run, (run,), folder / "runs" / run) for run in runs]
    return run_all(RunsInOrder(cells), processes, **more)


def test_the_requested_number_of_runs_is_executed_in_parallel(tmp_path, stand_in, capsys):
    stand_in(
        'mkdir running.$$; ls -d running.* | wc -l >> seen; sleep 0.2; rmdir running.$$; echo "$@"'
    )
    runs = [f"seed={n}" for n in range(6)]
    found = sweep(tmp_path, *runs, processes=3)
    assert sorted(done.run.name for done in found) == runs
    assert max(map(int, (tmp_path / "seen").read_text().split())) == 3
    assert all("-m normlab train seed=" in done.last_line for done in found)
    lines = capsys.readouterr().out.splitlines()
    assert sum("started" in line for line in lines) == 6 and lines[-1].startswith("[6/6]")
    assert "seed=3" in (tmp_path / "runs" / "seed=3" / LOG_FILE).read_text()


def test_a_failing_run_does_not_affect_the_others_and_its_reason_is_printed(
    tmp_path, stand_in, capsys
):
    stand_in(
        'case "$*" in *norm=b*) echo "train: no such thing" >&2; exit 3;; *rms*) exit 1;; esac'
    )
    names = ("norm=ln", "norm=bn", "norm=rms", "norm=brn")
    cells = [RunToStart(name, (name,), tmp_path / name) for name in names]
    found = run_all_shown(RunsInOrder(cells), 1, resume_command="normlab train")
    assert [done.status for done in found] == [0, 3, 1, 3]
    out = capsys.readouterr().out
    assert out.count("no such thing") == 1  # runs with the same reason share its line
    lines = out.split("1 of 4 runs done\n")[1].splitlines()
    assert lines[:2] == ["  failed with status 3: norm=bn", "  failed with status 3: norm=brn"]
    assert lines[2] == f"    train: no such thing ({tmp_path}/norm=bn/{LOG_FILE})"
    assert "no output" in lines[4]


def test_a_run_of_another_sweep_is_not_started_and_keeps_its_log(tmp_path, stand_in):
    stand_in('echo "$@" begun; echo >> calls; until [ -e go ]; do sleep 0.05; done; echo done')
    first: list = []
    sweeping = threading.Thread(target=lambda: first.extend(sweep(tmp_path, "a=1")))
    sweeping.start()
    while not (tmp_path / "calls").exists():
        time.sleep(0.05)
    (second,) = sweep(tmp_path, "a=1")
    assert second.failed and second.last_line.endswith(
        "is being trained by another process; wait for it, or stop it"
    )
    (tmp_path / "go").touch()
    sweeping.join()
    log = (tmp_path / "runs" / "a=1" / LOG_FILE).read_text().splitlines()
    assert [log[-1], first[0].last_line] == ["done", "done"] and "begun" in log[0]
    assert [done.status for done in sweep(tmp_path, "a=1")] == [0]


def test_a_killed_run_is_reported_with_a_hint_that_memory_may_have_run_out(tmp_path, stand_in):
    stand_in("kill -9 $$")
    (done,) = sweep(tmp_path, "a=1")
    assert done.failed and "memory" in done.last_line and "batch_size" in done.last_line


def test_an_interrupted_run_ends_the_sweep(tmp_path, stand_in, capsys):
    stand_in("echo $$ >> calls; exit 130")
    cells = [RunToStart(name, (name,), tmp_path / name) for name in ("a=1", "a=2", "a=3")]
    with pytest.raises(KeyboardInterrupt):
        run_all_shown(RunsInOrder(cells), 1, resume_command="normlab train -m a=1,2,3")
    assert len((tmp_path / "calls").read_text().split()) == 1
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "stopped: 0 of 3 runs done, 3 left",
        "resume with: normlab train -m a=1,2,3",
    ]


@pytest.mark.parametrize(
    ("end", "result"),
    [
        ("kill -TERM $$", "stopped; nothing was saved"),
        ("exit 130", "stopped; nothing was saved"),
        ("mkdir -p runs/a=1/checkpoints; > runs/a=1/checkpoints/last.pt; exit 130", "saved; can"),
    ],
)
def test_an_interrupted_run_is_saved_if_it_has_a_checkpoint(
    end, result, tmp_path, stand_in, capsys
):
    stand_in(end)
    with pytest.raises(KeyboardInterrupt):
        sweep(tmp_path, "a=1")
    assert f"a=1, 0 s: {result}" in capsys.readouterr().out


def test_the_progress_of_a_killed_process_is_not_that_of_the_new_one(tmp_path, stand_in):
    stand_in(f"ls runs/a=1/{PROGRESS_FILE} || echo no progress")
    (tmp_path / "runs/a=1").mkdir(parents=True)
    (tmp_path / "runs/a=1" / PROGRESS_FILE).write_text("{}")
    (done,) = sweep(tmp_path, "a=1")
    assert done.last_line == "no progress"


WAITING = "trap 'echo saved >> ended; exit 130' TERM; echo $$ >> calls; while :; do sleep 0.1; done"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def test_a_signal_reaches_every_run_and_no_further_run_starts(number, tmp_path, stand_in):
    stand_in(WAITING)
    calls = tmp_path / "calls"

    def stop():
        while not calls.exists() or len(calls.read_text().split()) < 2:
            time.sleep(0.05)
        os.kill(os.getpid(), number)

    threading.Thread(target=stop).start()
    with pytest.raises(KeyboardInterrupt):
        sweep(tmp_path, *(f"a={n}" for n in range(5)))
    assert (tmp_path / "ended").read_text().split() == ["saved", "saved"]
    assert len(calls.read_text().split()) == 2


def test_at_the_deadline_runs_are_saved_and_no_further_run_starts(tmp_path, stand_in):
    stand_in(WAITING)
    found = sweep(tmp_path, "a=1", "a=2", processes=1, deadline=time.monotonic() + 1)
    assert [done.interrupted for done in found] == [True]


def test_each_process_uses_its_own_gpu_and_explicit_threads_are_kept(
    tmp_path, stand_in, monkeypatch
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    both = "echo begun >> calls; until [ $(wc -l < calls) = 2 ]; do sleep 0.05; done"
    stand_in(f'{both}; echo "$CUDA_VISIBLE_DEVICES $*"')
    found = sweep(tmp_path, "observe.threads=7", "a=1", processes=None)
    assert {done.last_line.split()[0] for done in found} == {"3", "5"}
    assert all(done.last_line.count("observe.threads=") == 1 for done in found), (
        "explicit threads are kept"
    )


@pytest.mark.parametrize(
    ("variable", "gpus"),
    [
        ("3,5", ["3", "5"]),
        ("GPU-1a2b, MIG-3c4d", ["GPU-1a2b", "MIG-3c4d"]),
        ("NoDevFiles", []),  # Slurm without --gres
        ("-1", []),  # how CUDA hides all GPUs
        ("-1,0", []),
        ("", []),
    ],
)
def test_visible_gpus_are_read_from_cuda_visible_devices(variable, gpus, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert visible_gpus() == gpus


def test_without_gpus_there_is_one_process_per_core(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert len(machine_shares(None)) == usable_cores()
    assert all(not place.variables for place in machine_shares(2))
    with pytest.raises(ValueError, match="processes=-1 must be above 0"):
        machine_shares(-1)
