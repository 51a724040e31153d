"""Scores near the untrained baseline, as values and as notes."""

from msgspec.structs import replace

from normlab.records.pairs import Experiment
from normlab.reports.legend import About
from normlab.reports.table_formats.terminal_table import print_score_table
from normlab.reports.tables.untrained import Untrained
from tests.reports.handmade import made, sweep

LOSS = "test/loss"


def row(*losses):
    """Return a row with these test losses; the untrained baseline is 6.67."""
    records = [
        replace(made("ln", seed, {LOSS: loss}), floors={"loss": 6.67})
        for seed, loss in enumerate(losses, 1)
    ]
    return Experiment.of(records)


def test_rows_near_the_baseline_are_listed_by_score():
    untrained = Untrained.of({"ln": row(2.0, 2.1), "bn": row(6.6, 6.6)}, [LOSS])
    assert untrained.baselines == {LOSS: (6.67, 6.67)}
    assert untrained.rows_near == {LOSS: ["bn"]} and untrained.runs_near == {"bn": (2, 2)}
    notes = {note.about: note for note in untrained.notes}
    assert notes[About.BASELINE].text == "untrained baseline: test/loss 6.670"
    assert notes[About.NOT_CLEAR].text.endswith("so a difference says nothing: test/loss (bn)")


def test_a_terminal_marks_scores_and_differences_near_the_baseline(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    levels = {("ln", "8"): 30.0, ("bn", "8"): 0.2, ("ln", "32"): 30.0, ("bn", "32"): 25.0}
    table = sweep(levels, floor=0.1)
    print_score_table(table, "ln")
    values, differences = capsys.readouterr().out.split("difference from ln")
    assert [line.split()[:2] for line in values.splitlines() if "~" in line] == [["bn", "8"]]
    assert [line.split()[:2] for line in differences.splitlines() if "~" in line] == [["bn", "8"]]
    brief = next(note.brief for note in table.notes if note.about is About.NOT_CLEAR)
    assert brief == "~ near the untrained baseline, so a difference says nothing"


def test_a_single_run_near_the_baseline_is_counted_and_without_one_there_is_no_note():
    one = Untrained.of({"ln": row(2.0, 6.6)}, [])
    assert one.rows_near == {} and one.runs_near == {"ln": (1, 2)}
    assert next(note.brief for note in one.notes) == "near the untrained baseline: ln (1/2 runs)"
    assert [*Untrained.of({"ln": row(2.0)}, []).notes] == []
