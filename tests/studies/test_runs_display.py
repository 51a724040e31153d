"""The display of many runs: a live table that fits the terminal, and the time left."""

import io
import json
import re

import pytest
from rich.console import Console

from normlab.config.registry import START_FILE
from normlab.records.store import PROGRESS_FILE
from normlab.studies.hydra_sweep import short_names
from normlab.studies.process_pool import INTERRUPTED, EndedRun, RunToStart
from normlab.studies.runs_display import RunsDisplay


def shown(tmp_path, count, *, terminal=False):
    cells = [RunToStart(f"norm=bn seed={n}", (), tmp_path / str(n)) for n in range(count)]
    for cell in cells:
        cell.folder.mkdir(exist_ok=True)
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=80, height=20)
    return RunsDisplay(2, console), cells, out


def plain(out):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue()).replace("\r", "\n")


def progress(folder, **changes):
    said = {"phase": "training", "done": 120, "total": 500, "loss": 5.25, "left": 40.0}
    said |= {"spent": None, "trained": False}
    (folder / PROGRESS_FILE).write_text(json.dumps({**said, **changes}))


@pytest.mark.parametrize("count", [3, 60])
def test_a_live_table_fits_the_terminal_and_shows_what_is_running(tmp_path, count):
    runs, cells, out = shown(tmp_path, count, terminal=True)
    with runs:
        progress(cells[1].folder, left=400.0)
        runs.beat({cells[1]: 10.0}, [], count)
        assert re.search(r"^0 of \d+ done, about .* of training left *\n", plain(out))
        progress(cells[1].folder)
        failed = [EndedRun(cell, 1, "", 1.0) for cell in cells[2:]]
        runs.beat({cells[1]: 10.0}, failed, count)
        text = plain(out)
    assert max(map(len, text.splitlines())) <= 80
    assert len(text[text.rindex(" of ") :].splitlines()) <= 20
    row = [line.strip() for line in text.splitlines() if "training 120" in line][-1]
    assert re.fullmatch(r"norm=bn seed=1 +training 120/500 +5\.25 +40 s", row)


def test_the_time_left_includes_running_and_pending_runs(tmp_path, capsys):
    runs, cells, _ = shown(tmp_path, 5)
    progress(cells[0].folder, left=10.0)
    progress(cells[1].folder)
    runs.beat({cells[0]: 50.0, cells[1]: 50.0}, [], 5)  # trained after 60 and 90 s
    assert runs.left == pytest.approx((10 + 40 + 3 * (60 + 90) / 2) / 2)
    assert capsys.readouterr().out.startswith("0 of 5 done, about 2 min of training left | ")
    ended = [EndedRun(cells[0], 0, "", 80.0)]  # 20 s of validation and test
    progress(cells[2].folder, left=60.0)
    runs.beat({cells[1]: 60.0, cells[2]: 60.0}, ended, 5)
    assert runs.left == pytest.approx((60 + 80 + 2 * (120 + 140 + 80) / 3) / 2)
    assert capsys.readouterr().out.startswith("1 of 5 done, about 3 min left | ")


def test_the_time_left_does_not_grow_while_the_first_runs_are_tested(tmp_path):
    runs, cells, _ = shown(tmp_path, 6)
    progress(cells[0].folder, left=1.0)
    runs.beat({cells[0]: 29.0}, [], 6)
    before = runs.left
    for seconds in (31.0, 60.0, 90.0):
        progress(cells[0].folder, phase="testing", done=1, total=1000, left=50.0, trained=True)
        runs.beat({cells[0]: seconds}, [], 6)
        assert runs.left <= before
    assert "of training left" in runs.counts()


def test_interrupted_runs_are_not_done_and_are_saved_only_with_a_checkpoint(tmp_path):
    runs, cells, _ = shown(tmp_path, 6)
    progress(cells[0].folder)
    (cells[0].folder / "checkpoints").mkdir()
    (cells[0].folder / START_FILE).touch()
    progress(cells[1].folder, phase="preparing", done=0)
    runs.beat({cells[0]: 10.0, cells[1]: 10.0, cells[2]: 10.0}, [], 6)
    interrupted = [EndedRun(cell, INTERRUPTED, "", 11.0) for cell in cells[:3]]
    runs.beat({}, interrupted, 6)
    assert runs.counts().startswith("0 of 6 done") and runs.left is None
    assert runs.stopped("again") == [
        "stopped: 0 of 6 runs done, 6 left",
        "  norm=bn seed=0 (saved at training 120/500)",
        "resume with: again",
    ]


def test_the_names_of_a_sweeps_runs_contain_only_the_overrides_that_differ():
    named = short_names([("norm=ln", "a=1", "seed=1"), ("norm=bn", "a=1", "seed=1")])
    assert named == ["norm=ln", "norm=bn"]
