import io
import itertools
import math
import re
import time
from types import SimpleNamespace

import pytest
from rich.console import Console as RichConsole

from normlab import stages
from normlab.commands.train import summary
from normlab.formats import duration, estimated, short_number
from normlab.metrics.baseline import is_near_baseline, on_plateau
from normlab.records.record import BudgetUsed, Outcome, Score
from normlab.stages import Stage
from normlab.training import console
from normlab.training.console import Console
from normlab.training.sinks import Notice
from tests.training.sink_runs import RUN_ID, info, record, scores


def show(tmp_path, *, terminal: bool, width=120, end=None, note=""):
    out = io.StringIO()
    console = RichConsole(file=out, force_terminal=terminal, width=width, highlight=False)
    sink = Console(style="auto", console=console)
    sink.stage(Stage("preparing"))
    sink.open(info(tmp_path))
    sink.stage(Stage("training", 10, 100, 4.5))
    row = {"step": 10, "tokens": 9, "time/seconds": 1.5, "train/loss": 4.5}
    sink.log({**row, "train/tokens_per_second": 1234.0})
    sink.stage(Stage("training", 50, 100, 3.25))
    sink.log({"step": 50, "train/loss": 3.25, "train/tokens_per_second": 2345.6})
    sink.stage(Stage("validating", 3, 7))
    sink.log({"step": 50}, scores(12.34, 3.1))
    sink.stage(Stage("training", 51, 100, 3.25))
    if note:
        sink.note(Notice(note))
    sink.close(end)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue()).replace("\r", "\n")


def test_a_pipe_gets_one_plain_line_per_row(tmp_path):
    lines = show(tmp_path, terminal=False, width=40, note="[early] stop").splitlines()
    assert lines[:2] == [RUN_ID, "model=tiny scale=smoke"]
    del lines[0]
    assert lines[1] == "step 10/100  train/loss 4.5  1,234 tok/s"
    assert re.fullmatch(r"step 50/100  train/loss 3.25  2,346 tok/s  about 1 s left", lines[2])
    assert re.fullmatch(r"step 50/100  valid/loss 3.1  valid/bleu 12.34  about 1 s left", lines[3])
    assert lines[4:] == ["[early] stop"]


def test_a_terminal_shows_phase_time_loss_and_speed_in_80_columns(tmp_path):
    text = show(tmp_path, terminal=True, width=80)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("preparing") for line in lines)
    bar = [line for line in lines if line.startswith("training")][-1]
    for part in ("training 51/100", "0:00:0", " left", "loss 3.25", "2,346"):
        assert part in bar
    assert "step 50/100  valid/loss 3.1  valid/bleu 12.34" in text


def test_the_scores_of_a_translation_validation_fit_in_one_line_of_80_columns(tmp_path):
    out = io.StringIO()
    sink = Console(style="terminal", console=RichConsole(file=out, width=80))
    sink.open(info(tmp_path))
    names = ("loss", "bleu", "bleu_tok", "brevity_penalty", "chrf")
    sink.log({"step": 50}, {f"valid/{name}": Score(12.34567, True, 9) for name in names})
    (line,) = [text for text in out.getvalue().splitlines() if "valid/" in text]
    assert line == "step 50/100  valid/loss 12.35  valid/bleu 12.35  valid/chrf 12.35"


@pytest.mark.parametrize("terminal", [True, False])
def test_the_final_summary_has_at_most_twelve_lines_with_scores_paths_and_commands(
    tmp_path, terminal
):
    end = record(outcome=Outcome("diverged", 70, "loss is nan", "encoder.3"), floors={"bleu": 0.25})
    text = show(tmp_path, terminal=terminal, end=end, width=80)
    page = text[text.index("diverged at step 70") :].rstrip().splitlines()
    assert len(page) <= 12
    parts = (
        "loss is nan in encoder.3",
        "23.46  (untrained baseline 0.25)",
        "123,456",
        "1 min 15 s",
    )
    for part in (*parts, "normlab report", "normlab inspect"):
        assert any(part in line for line in page)
    assert any(line.startswith("record: ") for line in page)


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (Outcome("finished", 4000, "steps"), "finished at step 4,000, its limit"),
        (Outcome("finished", 70, "tokens"), "finished at step 70, its limit in tokens"),
        (Outcome("finished", 70, "patience"), "finished at step 70, as its score stalled"),
        (Outcome("interrupted", 7, "SIGINT"), "interrupted at step 7 (SIGINT)"),
        (Outcome("diverged", 7, "loss is nan", "a.1"), "diverged at step 7 (loss is nan in a.1)"),
    ],
)
def test_the_summary_says_in_words_why_a_run_ended(tmp_path, outcome, said):
    end = record(outcome=outcome)
    assert f"{said}, in 1 min 15 s" in show(tmp_path, terminal=False, end=end)
    assert f"{said}: " in summary(end)


def test_a_status_line_in_a_pipe_has_no_loss_of_an_earlier_step(tmp_path, monkeypatch):
    clock = itertools.count(0.0, 100.0)
    monkeypatch.setattr(stages, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(console, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    out = io.StringIO()
    sink = Console(style="plain", console=RichConsole(file=out))
    sink.open(info(tmp_path))
    sink.stage(Stage("training", 15, 100, 5.859))
    assert out.getvalue().splitlines()[-1] == "training 15/100"


def test_the_summary_marks_label_smoothing_and_does_not_repeat_validation_scores(tmp_path):
    values = {"test/loss": 4.5, "test/perplexity": 80.0, "valid/loss": 4.25}
    end = record(
        config={"task": {"label_smoothing": 0.1}},
        scores={name: Score(value, False, 9) for name, value in values.items()},
    )
    page = show(tmp_path, terminal=True, end=end, width=80).partition("finished")[2]
    lines = {line.split()[0]: line for line in page.splitlines() if line.startswith("  test/")}
    assert lines["test/loss"].endswith("4.5  (smoothing 0.1)")
    assert lines["test/perplexity"].endswith("80") and "valid/loss" not in page


def test_the_cursor_is_shown_again_when_a_run_ends_without_a_record(tmp_path):
    out = io.StringIO()
    sink = Console(console=RichConsole(file=out, force_terminal=True))
    sink.open(info(tmp_path))
    sink.stage(Stage("training", 1, 100, 2.0))
    assert "\x1b[?25l" in out.getvalue()
    sink.close(None)
    assert out.getvalue().rindex("\x1b[?25h") > out.getvalue().rindex("\x1b[?25l")


def test_the_time_left_is_estimated_from_the_steps_since_the_resume(tmp_path, monkeypatch):
    clock = itertools.chain([1000.0], itertools.repeat(1020.0))
    monkeypatch.setattr(stages, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    out = io.StringIO()
    sink = Console(style="plain", console=RichConsole(file=out))
    sink.open(info(tmp_path, resumed_step=50))
    sink.stage(Stage("training", 60, 100))
    sink.log({"step": 60})
    sink.stage(Stage("training", 70, 100))
    sink.log({"step": 70})  # 10 steps in 20 s, 30 to go
    assert out.getvalue().splitlines()[::3] == [
        *(f"{RUN_ID}, resumed at step 50", "step 70/100  about 1 min left")
    ]


@pytest.mark.parametrize(
    "seconds, text",
    [(7.4, "7 s"), (83, "1 min 25 s"), (61, "1 min"), (1979, "33 min"), (9000, "2 h 30 min")],
)
def test_an_estimated_duration_is_rounded_to_a_sensible_precision(seconds, text):
    assert estimated(seconds) == text


def test_progress_without_a_number_of_steps_is_shown_in_percent():
    assert str(Stage("training", 120, None, 2.0, 0.4)) == "training 120 (40%)"
    assert str(Stage("training", 120, 300, 2.0, 0.4)) == "training 120/300"


def test_a_pipe_is_never_silent_for_long(tmp_path, monkeypatch):
    now = itertools.count(0.0, 2.0)
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    out = io.StringIO()
    sink = Console(style="plain", console=RichConsole(file=out))
    for done in range(0, 500, 10):
        sink.stage(Stage("testing", done, 500))
    lines = out.getvalue().splitlines()
    assert 5 < len(lines) < 40 and all(re.match(r"testing \d+/500", line) for line in lines)


def test_numbers_and_durations_are_shown_with_few_digits():
    figures = (3.0, 0.00051234, 1234.6, -1.5, math.nan, math.inf, 0.0)
    assert [*map(short_number, figures)] == ["3", "0.0005123", "1,235", "-1.5", "nan", "inf", "0"]
    assert [*map(duration, (0.4, 59.4, 59.6, 7620))] == ["0 s", "59 s", "1 min 0 s", "2 h 7 min"]


@pytest.mark.parametrize(
    ("loss", "known"), [(6.90, False), (6.86, True), (6.61, True), (6.59, False), (2.0, False)]
)
def test_a_run_whose_loss_is_near_the_unigram_entropy_is_reported_as_on_a_plateau(
    tmp_path, loss, known
):
    """The loss is within 0.15 nats of the unigram entropy, above or below it."""
    end = record(scores={"test/loss": Score(loss, False, 100)}, floors={"loss": 6.7449})
    for said in (show(tmp_path, terminal=False, end=end), summary(end)):
        assert ("but on a plateau" in said) == known
    # The model predicts classes better than chance.
    classes = {"test/accuracy": Score(0.65, True, 60), **end.scores}
    assert not on_plateau(record(scores=classes, floors={"accuracy": 0.4, **end.floors}))
    lost = Outcome("diverged", 5)
    assert not on_plateau(record(scores=end.scores, floors=end.floors, outcome=lost))


@pytest.mark.parametrize(
    ("loss", "floor", "steps", "at_baseline"),
    [(4.0, 4.5, 100, True), (4.0, 5.5, 100, False), (4.0, 4.5, 1, False), (4.0, None, 100, False)],
)
def test_a_run_that_is_not_clearly_better_than_its_baseline_is_reported_as_such(
    tmp_path, loss, floor, steps, at_baseline
):
    end = record(
        scores={"test/loss": Score(loss, False, 100)},
        floors={} if floor is None else {"loss": floor},
        budget=BudgetUsed(steps, 9, 1.0, 9.0, 0),
    )
    assert is_near_baseline(end) is at_baseline
    for said in (show(tmp_path, terminal=False, end=end), summary(end)):
        assert ("but not clearly better than the untrained baseline" in said) == at_baseline
    if at_baseline:
        assert "baseline: test/loss 4 is not 1 nat below 4.5\n" in show(
            tmp_path, terminal=False, end=end
        )
