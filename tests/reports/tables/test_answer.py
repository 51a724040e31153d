"""The one-sentence answer of a table."""

from dataclasses import replace as changed

from normlab.records.pairs import Experiment
from normlab.reports.arrangement.row_names import RowName
from normlab.reports.tables.answer import answer
from tests.reports.handmade import (
    BLEU,
    SIZES,
    build,
    diverged,
    made,
    run,
    study,
    sweep,
)


def test_the_answer_says_where_a_row_is_below_the_baseline_and_how_many_seeds_ran():
    """Two batch sizes are listed; more become a range."""
    # Differences: the level's, plus 0, 0.1 and 0.2: mean + 0.1, half an interval 0.25.
    assert sweep(SIZES).answer == (
        "At batch size 8 and 32 bn is 1.4 to 1.9 BLEU below ln, at 128 not clearly different "
        "(+0.1 [-0.1, +0.3]); three seeds."
    )
    more = {**SIZES, ("bn", "128"): 28.0}
    assert (
        sweep(more).answer == "At batch size 8 to 128 bn is 1.4 to 2.9 BLEU below ln; three seeds."
    )


def test_the_answer_for_one_seed_has_no_interval_and_says_so():
    assert sweep(SIZES, seeds=1).answer == (
        "At batch size 8 and 32 bn is 1.5 to 2.0 BLEU below ln, at 128 not clearly different "
        "(+0.00); one seed, so another seed may say otherwise."
    )


def test_the_answer_puts_the_number_before_a_counted_setting():
    levels = {("ln", "60"): 30.0, ("bn", "60"): 28.0, ("ln", "300"): 30.0, ("bn", "300"): 28.0}
    said = sweep(levels, "budget.steps").answer
    assert said == "At 60 and 300 steps bn is 1.9 BLEU below ln; three seeds."


def test_the_answer_compares_no_norms_if_nothing_beats_the_untrained_baseline():
    answer = sweep(SIZES, floor=31.0).answer
    assert answer.startswith("Nothing is clearly better than the untrained baseline in BLEU, so")
    assert "below" not in answer


def test_rows_are_not_compared_with_a_row_near_the_untrained_baseline():
    levels = {("ln", "8"): 20.0, ("bn", "8"): 28.0, ("ln", "32"): 20.0, ("bn", "32"): 29.0}
    assert sweep(levels, floor=20.0).answer == (
        "In BLEU, ln is near the untrained baseline, so no row is compared with it; three seeds."
    )
    levels |= {("ln", "32"): 30.0, ("bn", "32"): 29.0}
    assert sweep(levels, floor=20.0).answer.startswith(
        "At batch size 8 bn is not compared (the row"
    )


def test_the_answer_mentions_the_baseline_once_and_counts_points_over_two_axes():
    def said(levels, points):
        found = [
            run(made(row, 1, {BLEU: level}), row, 1, point)
            for (row, level), point in zip(levels, points, strict=True)
        ]
        rows = {row: (f"norm={row}",) for row, _ in levels}
        grid = {key: {} for key in ("batch_size", "optim.lr") if key in points[0]}
        of = study(rows=rows, grid=grid, columns=(BLEU,))
        return build(of, found).answer

    rows = [("ln, padding excluded", 30.0), ("bn", 29.0), ("gn, ghost batch 8", 30.5)]
    assert said(rows, [""] * 3) == (
        "Compared with ln (padding excluded) in BLEU, bn is 1.0 below; gn (ghost batch 8) is 0.5 "
        "above; one seed, so another seed may say otherwise."
    )
    sizes = [f"batch_size={size} optim.lr={rate}" for size in (8, 32) for rate in (0.1, 0.2)]
    levels = [(rows[0][0], 30.0)] * 4 + [("bn", level) for level in (29.0, 29.5, 29.5, 30.5)]
    assert said(levels, sizes * 2) == (
        "In BLEU, bn is 0.5 to 1.0 BLEU below ln (padding excluded) at three of four points and "
        "is 0.5 BLEU above at one; one seed, so another seed may say otherwise."
    )


def test_the_answer_lists_each_word_of_an_axis_and_says_that_a_lower_loss_is_better():
    levels = {("ln", "pre"): 3.0, ("bn", "pre"): 3.5, ("ln", "post"): 3.0, ("bn", "post"): 4.0}
    table = sweep(levels, "placement", score="test/loss", column=("test/loss",))
    assert table.answer == (
        "With placement pre, bn is 0.600 above ln in test loss (lower is better), with post 1.100 "
        "above; three seeds."
    )


def test_the_answer_reports_divergence_and_the_best_point_of_a_single_row():
    table = sweep(SIZES)
    first = next(row for row in table.rows if row.label == "bn at batch size 8")
    ended = Experiment.of([diverged(first.records[0], 45), *first.records[1:]])
    rows = tuple(changed(row, experiment=ended) if row is first else row for row in table.rows)
    said = answer(changed(table, rows=rows), RowName(("ln",)))
    assert said.startswith("At batch size 8 bn has seeds that diverged, at 32 it is 1.4 BLEU below")
    alone = {key: level for key, level in SIZES.items() if key[0] == "bn"}
    assert sweep(alone).answer == (
        "The BLEU of bn is best at batch size 128 (31.20) and worst at batch size 8 (28.20); three "
        "seeds."
    )
    assert sweep({("bn", "8"): 28.0}).answer == "The BLEU of bn is 28.20 +- 0.20; three seeds."
