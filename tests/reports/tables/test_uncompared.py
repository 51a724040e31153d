"""Rows that are not compared with the baseline, or only on some seeds."""

from msgspec.structs import replace

from normlab.records.record import Outcome
from normlab.reports.legend import About
from normlab.reports.tables.uncompared import ComparisonLimit, Uncompared
from tests.reports.handmade import BLEU, build, made, run, runs, study


def uncompared(found):
    table = build(study(), found)
    return Uncompared.of(table.rows)


def test_a_row_with_a_diverged_seed_is_not_compared_at_all():
    diverged = replace(made("bn", 2), outcome=Outcome("diverged", 5))
    found = [*runs({"ln": [30.0, 31.0], "bn": [28.0]}), run(diverged, "bn", 2)]
    rows = uncompared(found)
    ((reason, of_reason),) = rows.rows.items()
    assert reason.obstacle.startswith("seeds diverged: 1 of 2 of the row")
    assert [row.name for row in of_reason] == [row.name for row in rows.on_no_seed] == ["bn"]
    note = rows.note("ln", "ln", "hardware")
    assert note.text.startswith("differences: not compared with ln, seeds diverged: 1 of 2")
    assert (note.brief, note.about) == ("not compared: bn", About.OTHER)


def test_the_note_on_a_row_with_only_some_pairs_lists_their_seeds():
    rows = uncompared(runs({"ln": [30.0, 31.0], "bn": [28.0]}))
    assert [*rows.rows] == [ComparisonLimit(seeds=(1,))] and rows.on_no_seed == []
    note = rows.note("ln", "ln", "hardware")
    assert note.text.startswith("differences: only seeds 1 are pairs (bn); ") and not note.brief
    assert uncompared(runs({"ln": [30.0, 31.0], "bn": [28.0, 28.5]})).rows == {}


def test_many_rows_are_only_counted_in_the_brief_note():
    names = ("a", "b", "c", "d")
    rows = {"ln": (), **{name: () for name in names}}
    found = [run(made("ln", 1, {BLEU: 1.0}), "ln", 1)]
    found += [run(made(name, 2, {BLEU: 1.0}), name, 2) for name in names]
    table = build(study(rows=rows), found)
    note = Uncompared.of(table.rows).note("ln", "ln", "hardware")
    assert note.brief == "4 rows are not compared with ln"
