"""Cells side by side: how many at once, on what part of the machine, and what a failure costs."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from normlab.sweep import Cell, Sweep, places, summary_lines, visible_gpus


def stand_in(folder: Path, monkeypatch, script: str) -> None:
    """Let a shell script stand where the interpreter would."""
    program = folder / "python"
    program.write_text(f"#!/bin/sh\ncd {folder}\n{textwrap.dedent(script)}")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


def sweep(folder: Path, cells, *, processes=2):
    told: list[str] = []
    return Sweep(cells, processes=processes, logs=folder / "logs", tell=told.append), told


def test_as_many_run_at_once_as_are_asked_for(tmp_path, monkeypatch):
    script = (
        'mkdir running.$$; ls -d running.* | wc -l >> seen; sleep 0.4; rmdir running.$$; echo "$@"'
    )
    stand_in(tmp_path, monkeypatch, script)
    found, told = sweep(tmp_path, [[f"seed={n}"] for n in range(6)], processes=3)
    cells = found.run()
    assert [cell.overrides for cell in cells] == [(f"seed={n}",) for n in range(6)]
    assert max(map(int, (tmp_path / "seen").read_text().split())) == 3
    assert all("-m normlab train seed=" in cell.said for cell in cells)
    assert sum("begins" in line for line in told) == 6 and told[-1].startswith("[6/6]")


def test_a_failure_costs_itself_and_says_why(tmp_path, monkeypatch):
    script = 'case "$*" in *bn*) echo "normlab train: no such thing" >&2; exit 3;; esac; echo fine'
    stand_in(tmp_path, monkeypatch, script)
    cells = sweep(tmp_path, [["norm=ln"], ["norm=bn"], ["norm=in"]])[0].run()
    assert [cell.status for cell in cells] == [0, 3, 0]
    lines = summary_lines(cells, tmp_path / "logs")
    assert lines[0] == "2 of 3 cells done"
    assert "norm=bn" in lines[1] and "no such thing" in lines[1] and "cell1.log" in lines[1]


def test_sweeps_at_once_on_one_folder_say_what_their_own_cells_said(tmp_path, monkeypatch):
    script = """
    echo "began $4"; echo $4 >> calls
    while [ "$(wc -l < calls)" -lt 2 ]; do sleep 0.05; done
    case "$4" in norm=bn) sleep 0.4; exit 3;; esac
    """
    stand_in(tmp_path, monkeypatch, script)
    ended: dict[str, list[str]] = {}

    def carry_out(norm: str) -> None:
        own = sweep(tmp_path, [[norm]])[0]
        ended[norm] = summary_lines(own.run(), own.logs)

    both = [threading.Thread(target=carry_out, args=(norm,)) for norm in ("norm=bn", "norm=ln")]
    for thread in both:
        thread.start()
        time.sleep(0.1)
    for thread in both:
        thread.join()
    assert ended["norm=ln"] == ["1 of 1 cells done"]
    failed = ended["norm=bn"][1]
    assert "began norm=bn" in failed
    assert Path(failed.rpartition("(")[2].rstrip(")")).read_text() == "began norm=bn\n"


def test_a_cell_that_was_told_to_stop_ends_the_sweep(tmp_path, monkeypatch):
    stand_in(tmp_path, monkeypatch, "echo $$ >> calls; exit 130")
    with pytest.raises(KeyboardInterrupt):
        sweep(tmp_path, [["a=1"], ["a=2"], ["a=3"]], processes=1)[0].run()
    assert len((tmp_path / "calls").read_text().split()) == 1


def test_a_signal_reaches_every_cell_and_begins_no_other(tmp_path, monkeypatch):
    script = (
        "trap 'echo saved >> ended; exit 130' TERM; echo $$ >> calls; while :; do sleep 0.1; done"
    )
    stand_in(tmp_path, monkeypatch, script)

    def stop():
        while (
            not (tmp_path / "calls").exists() or len((tmp_path / "calls").read_text().split()) < 2
        ):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop).start()
    with pytest.raises(KeyboardInterrupt):
        sweep(tmp_path, [[f"a={n}"] for n in range(5)])[0].run()
    assert (tmp_path / "ended").read_text().split() == ["saved", "saved"]
    assert len((tmp_path / "calls").read_text().split()) == 2


def test_each_process_keeps_to_its_share(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert visible_gpus() == ["3", "5"]
    both = "echo begun >> calls; until [ $(wc -l < calls) = 2 ]; do sleep 0.05; done"
    stand_in(tmp_path, monkeypatch, f'{both}; echo "$CUDA_VISIBLE_DEVICES $*"')
    cells = sweep(tmp_path, [["a=1"], ["a=2"]], processes=None)[0].run()
    assert {cell.said.split()[0] for cell in cells} == {"3", "5"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert len(places(None)) == len(os.sched_getaffinity(0))
    assert all(not place.variables for place in places(2))


def test_threads_that_are_given_stay(tmp_path, monkeypatch):
    stand_in(tmp_path, monkeypatch, 'echo "$*"')
    cells = sweep(tmp_path, [["observe.threads=7"], ["a=1"]])[0].run()
    assert cells[0].said.count("observe.threads") == 1
    assert "observe.threads=" in cells[1].said


def test_a_silent_death_is_named():
    lines = summary_lines([Cell(("norm=bn",), -9, "", 1.0)], Path("logs"))
    assert "failed with status -9: norm=bn" in lines[1] and "it said nothing" in lines[1]


def test_no_process_at_all_is_refused():
    with pytest.raises(ValueError, match="processes=-1 must be above 0"):
        places(-1)


def test_a_light_module():
    code = "import sys, normlab.sweep; print('torch' in sys.modules, 'hydra' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
