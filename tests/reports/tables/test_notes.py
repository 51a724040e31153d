"""The notes below a table."""

from msgspec.structs import replace

from normlab.metrics.baseline import CLEAR, NOT_CLEAR, ON_PLATEAU
from normlab.reports.legend import About
from tests.reports.handmade import BLEU, build, diverged, made, noisy, note_of, run, study, table

FOUR_SEEDS = {**noisy(30.0, 20.0, 25.0), "gn": [25.0, 25.1, 25.2, 25.0]}


def test_a_row_with_fewer_than_five_seeds_is_noted():
    assert "(fewest: 4)" in note_of(table(FOUR_SEEDS), "rows with fewer than 5")
    assert note_of(table(noisy(30.0, 20.0)), "rows with fewer than 5") == ""


def test_notes_report_the_number_of_updates_the_tested_weights_and_the_baseline():
    chosen = made("ln", 1, {"valid/loss": 6.2}, validate={"average": 0, "select_by": "loss"})
    chosen = replace(chosen, floors={"loss": 6.67, "bleu": 3.0})
    lengths = [
        run(replace(chosen, budget=replace(chosen.budget, steps=1000 * n)), name)
        for n, name in enumerate(("ln", "bn", "gn", "in"), 1)
    ]
    found = build(study(rows={each.key.row: () for each in lengths}), lengths)
    assert found.notes[0].text.endswith("1,000 to 4,000 updates")
    assert note_of(found, "tested: ") == "tested: the weights of the best valid/loss, not the last"
    assert note_of(found, "untrained baseline: ") == "untrained baseline: valid/loss 6.670"
    note = note_of(found, NOT_CLEAR)  # 6.2 is better, but not by a nat
    assert note.startswith(f"{NOT_CLEAR} ({CLEAR}), so a difference says nothing")
    assert note.endswith("says nothing: valid/loss (all rows)")


def test_the_note_on_the_best_row_names_the_mark_of_the_terminal_there():
    (best,) = (note for note in table(noisy(30.0, 20.0)).notes if note.about is About.BOLD)
    assert best.text.startswith("bold: better than every other row at its point")
    assert best.in_terminal == best.text.replace("bold:", "*:")


def test_a_table_whose_runs_all_diverged_says_that_no_run_finished():
    lost = [run(diverged(made(name, 1), 45), name) for name in ("ln", "bn")]
    assert build(study(), lost).notes[0].text.endswith("; no run finished")


def test_runs_that_did_not_learn_or_that_see_the_future_are_marked():
    flat = {1: 6.6, 2: 2.0}  # test losses; the untrained baseline has 6.67
    made_of = [
        run(replace(made(name, s, {BLEU: 1.0, "test/loss": loss}), **changes), name, s)
        for name, changes in (
            ("ln", {"floors": {"loss": 6.67}}),
            ("bn", {"floors": {"loss": 60.0}, "sees_future": ["InstanceNorm"]}),
        )
        for s, loss in flat.items()
    ]
    found = build(study(), made_of)
    ln, bn = (row.stability.split("; ") for row in found.rows)
    assert f"1/2 {NOT_CLEAR}" in ln and "sees the future" not in ln
    assert f"1/2 {ON_PLATEAU}" in ln and not any(ON_PLATEAU in part for part in bn)
    assert note_of(found, f"{ON_PLATEAU}: ").startswith(f"{ON_PLATEAU}: test/loss within 0.15 nats")
    assert note_of(found, f"{NOT_CLEAR} (").endswith("): ln (1/2 runs)"), (
        "no column is near the baseline"
    )
    assert "sees the future" in bn and not any(NOT_CLEAR in part for part in bn)
    assert note_of(found, "sees the future").startswith("sees the future: bn (InstanceNorm): ")
