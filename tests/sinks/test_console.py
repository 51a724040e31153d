import io
import math
import re

import pytest
from rich.console import Console as RichConsole

from normlab.records.record import Outcome
from normlab.train.sinks.console import Console, duration, figure
from tests.sinks.runs import SIGNATURE, info, record, scores


def show(tmp_path, *, terminal: bool, width: int = 120, total_steps=100, end=None, note=None):
    out = io.StringIO()
    console = RichConsole(file=out, force_terminal=terminal, width=width, highlight=False)
    sink = Console(style="auto", console=console)
    sink.open(info(tmp_path, total_steps=total_steps))
    sink.log(
        {
            "step": 10,
            "tokens": 9,
            "time/seconds": 1.5,
            "train/loss": 4.5,
            "train/tokens_per_second": 1234.0,
        }
    )
    sink.log({"step": 50, "train/loss": 3.25, "train/tokens_per_second": 2345.6})
    sink.log({"step": 50}, scores(12.34, 3.1))
    if note:
        sink.note(note)
    sink.close(end)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue()).replace("\r", "\n")


def test_a_pipe_gets_one_plain_line_a_row(tmp_path):
    lines = show(tmp_path, terminal=False, width=40, note="[early] stop").splitlines()
    assert lines[:2] == ["toy-bn-pre-0123456789-seed1", "model=tiny scale=smoke"]
    del lines[0]
    assert lines[1] == "step 10/100  train/loss 4.5  train/tokens_per_second 1,234"
    assert re.fullmatch(
        r"step 50/100  train/loss 3.25  train/tokens_per_second 2,346  left \d+s", lines[2]
    )
    assert re.fullmatch(r"step 50/100  valid/bleu 12.34  valid/loss 3.1  left \d+s", lines[3])
    assert lines[4:] == ["[early] stop"]


def test_a_terminal_shows_step_loss_scores_speed_and_time_left(tmp_path):
    text = show(tmp_path, terminal=True)
    bar = [line for line in text.splitlines() if "tok/s" in line][-1]
    for part in ("step 50/100", "loss 3.25", "valid/bleu 12.34", "2,346 tok/s", "left "):
        assert part in bar
    assert "step 50  valid/bleu 12.34  valid/loss 3.1" in text


def test_a_narrow_terminal_keeps_step_and_time_left(tmp_path):
    text = show(tmp_path, terminal=True, width=50)
    bar = [line for line in text.splitlines() if "loss 3.25" in line][-1]
    assert "step 50/100" in bar
    assert "left " in bar


@pytest.mark.parametrize("terminal", [True, False])
def test_a_budget_without_steps_has_no_total(tmp_path, terminal):
    text = show(tmp_path, terminal=terminal, total_steps=None)
    assert "step 50" in text
    assert "50/" not in text
    assert "left" not in text


@pytest.mark.parametrize("terminal", [True, False])
def test_the_record_is_a_small_block(tmp_path, terminal):
    end = record(outcome=Outcome("diverged", 70, "loss is nan", "encoder.3"))
    text = show(tmp_path, terminal=terminal, end=end, width=200)
    for part in (
        "diverged at step 70",
        "loss is nan in encoder.3",
        "23.46",
        SIGNATURE,
        "123,456",
        "1m 15s",
        str(tmp_path / "record.json"),
    ):
        assert part in text
    assert len(text[text.index("outcome") :].splitlines()) <= 8


def test_the_cursor_comes_back_when_a_run_ends_without_a_record(tmp_path):
    out = io.StringIO()
    sink = Console(console=RichConsole(file=out, force_terminal=True))
    sink.open(info(tmp_path))
    assert "\x1b[?25l" in out.getvalue()
    sink.close(None)
    assert out.getvalue().rindex("\x1b[?25h") > out.getvalue().rindex("\x1b[?25l")


def test_the_time_left_is_by_the_steps_of_this_start(tmp_path, monkeypatch):
    clock = iter([1000.0, 1020.0])
    monkeypatch.setattr("normlab.train.sinks.console.time.monotonic", lambda: next(clock))
    out = io.StringIO()
    sink = Console(style="plain", console=RichConsole(file=out))
    sink.open(info(tmp_path, resumed_step=50))
    sink.log({"step": 60})
    sink.log({"step": 70})  # 10 steps in 20 s, 30 to go
    assert out.getvalue().splitlines() == [
        "toy-bn-pre-0123456789-seed1, resumed at step 50",
        "model=tiny scale=smoke",
        "step 60/100",
        "step 70/100  left 1m 00s",
    ]


def test_nothing_goes_to_the_standard_output(tmp_path, capsys):
    sink = Console(style="plain")
    sink.open(info(tmp_path))
    sink.log({"step": 1})
    sink.close(record())
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "step 1/100" in captured.err


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (3.0, "3"),
        (0.00051234, "0.0005123"),
        (1234.6, "1,235"),
        (12345, "12,345"),
        (-1.5, "-1.5"),
        (math.nan, "nan"),
        (math.inf, "inf"),
        (0.0, "0"),
    ],
)
def test_figures(value, text):
    assert figure(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0s"), (59.4, "59s"), (59.6, "1m 00s"), (7620, "2h 07m")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text
