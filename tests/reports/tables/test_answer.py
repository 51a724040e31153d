"""The one-sentence answer of a sweep, its charts, and how much text each row was trained on."""

from dataclasses import replace as changed

import pytest
from msgspec.structs import replace

from normlab.metrics.score_text import heading
from normlab.records.pairs import Experiment
from normlab.reports.figures.drawing import draw, write
from normlab.reports.figures.line_styles import LIGHT, row_styles
from normlab.reports.figures.paper_figures import figures_of
from normlab.reports.figures.score_charts import by_axis
from normlab.reports.pages.chart_json import chart
from normlab.reports.runs import unplaced_run
from normlab.reports.tables.answer import answer
from normlab.reports.tables.arrangement import arranged
from normlab.reports.tables.experiment_names import names
from normlab.reports.tables.recipes import recipes
from tests.records.examples import config
from tests.reports.handmade import build, diverged, made, run, study

BLEU = "test/bleu"
SPREAD = (0.0, 0.1, 0.2)


def sweep(levels, axis="batch_size", *, seeds=3, score=BLEU, column=(BLEU,), floor=None):
    """Return a sweep's table from a mean per row and value, and the untrained baseline `floor`."""
    rows = {row: (f"norm={row}",) for row, _ in levels}
    values = {value: (f"{axis}={value}",) for _, value in levels}
    floors = {} if floor is None else {score.split("/")[1]: floor}
    found = [
        run(
            replace(made(row, n, {score: level + SPREAD[n] * (1 + (row == "bn"))}), floors=floors),
            *(row, n, f"{axis}={value}"),
        )
        for (row, value), level in levels.items()
        for n in range(seeds)
    ]
    return build(study(rows=rows, grid={axis: values}, columns=column), found)


SIZES = {
    **{("ln", "8"): 30.0, ("bn", "8"): 28.0, ("ln", "32"): 30.0, ("bn", "32"): 28.5},
    **{("ln", "128"): 31.0, ("bn", "128"): 31.0},
}


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
        return answer(build(of, found), "ln, padding excluded")

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
    said = answer(changed(table, rows=rows), "ln")
    assert said.startswith("At batch size 8 bn has seeds that diverged, at 32 it is 1.4 BLEU below")
    alone = {key: level for key, level in SIZES.items() if key[0] == "bn"}
    assert sweep(alone).answer == (
        "The BLEU of bn is best at batch size 128 (31.20) and worst at batch size 8 (28.20); three "
        "seeds."
    )
    assert sweep({("bn", "8"): 28.0}).answer == "The BLEU of bn is 28.20 +- 0.20; three seeds."


def test_scores_are_drawn_over_a_logarithmic_batch_size_with_a_band():
    ((axis, (panel,)),) = by_axis(sweep(SIZES)).items()
    assert axis.name == "batch size" and panel.logarithmic_across and panel.ticks == (8, 32, 128)
    ln, bn = panel.series
    assert ln.mean == pytest.approx((30.1, 30.1, 31.1)) and bn.high[0] == pytest.approx(28.4)
    styles = row_styles([run(made(norm, 1), norm) for norm in ("ln", "bn")])
    (axes,) = draw([panel], styles, LIGHT).axes
    assert axes.get_xscale() == "log" and len(axes.collections) == 2
    assert [text.get_text() for text in axes.get_xticklabels()] == ["8", "32", "128"]


def test_scores_over_words_are_drawn_without_a_line():
    words = {("ln", "pre"): 3.0, ("bn", "pre"): 3.5, ("ln", "post"): 3.0, ("bn", "post"): 4.0}
    ((_, (panel,)),) = by_axis(sweep(words, "placement")).items()
    styles = row_styles([run(made(norm, 1), norm) for norm in ("ln", "bn")])
    (axes,) = draw([panel], styles, LIGHT).axes
    assert not panel.joined and panel.tick_names == ("pre", "post")
    assert {line.get_linestyle() for line in axes.get_lines()} == {"None"}
    assert [text.get_text() for text in axes.get_xticklabels()] == ["pre", "post"]


def test_a_row_with_one_point_has_a_marker_and_a_second_axis_gives_facets():
    one = {key: level for key, level in SIZES.items() if key != ("bn", "8") and key[1] != "128"}
    (panel,) = next(iter(by_axis(sweep(one)).values()))
    assert [len(line.x) for line in panel.series] == [2, 1] and chart(panel)["marked"]
    grid = {"batch_size": {"8": (), "32": ()}, "optim.lr": {"0.1": (), "0.2": ()}}
    found = [
        run(made("ln", 1, {BLEU: 30.0}), "ln", 1, f"batch_size={size} optim.lr={rate}")
        for size in (8, 32)
        for rate in (0.1, 0.2)
    ]
    table = build(study(grid=grid, columns=(BLEU,)), found)
    panel = by_axis(table)[next(iter(by_axis(table)))][0]
    assert panel.facets == ("learning rate 0.1", "learning rate 0.2")


@pytest.mark.parametrize("form", ["svg", "pdf", "png"])
def test_a_score_over_batch_sizes_is_a_figure_in_each_format(form, tmp_path):
    found = [run(made(norm, 1), norm) for norm in ("ln", "bn")]
    (name, title, panels), *others = figures_of(found, sweep(SIZES))
    assert name == "bleu_by_batch_size" and not any(each for *_, each in others)
    path = tmp_path / f"{name}.{form}"
    write(draw(panels, row_styles(found), LIGHT), path, title=title)
    assert path.stat().st_size > 1000


def test_a_note_says_whether_rows_were_trained_on_equally_many_tokens():
    def notes(tokens, steps, budget=None):
        record = made("ln", 1, {BLEU: 30.0})
        if budget is not None:
            outcome = replace(record.outcome, reason="tokens")
            config = {**record.config, "budget": {"tokens": budget}}
            record = replace(record, outcome=outcome, config=config)
        found = [
            run(
                replace(record, budget=replace(record.budget, tokens=seen, steps=updates)),
                *("ln", 1, f"batch_size={size}"),
            )
            for size, seen, updates in zip((8, 128), tokens, steps, strict=True)
        ]
        grid = {"batch_size": {"8": (), "128": ()}}
        return "\n".join(build(study(grid=grid), found).notes)

    unequal = notes((1000, 16000), (40, 40))
    assert "UNEQUAL tokens: in equal updates, ln at batch size 8 was trained on 1,000" in unequal
    assert "16.0 times as many" in unequal and "budget.tokens=N" in unequal
    assert "equal tokens: about 600,000 in each run" in notes((600_100, 599_800), (4779, 299))
    assert "equal tokens" not in notes((1000, 1000), (40, 40)).lower()
    small = notes((3_030, 3_360), (24, 2), budget=3_000)
    assert "equal tokens: 3,000 in each run's training" in small and "UNEQUAL" not in small


def test_placements_of_each_norm_are_an_axis_but_rates_tuned_per_size_are_not():
    placed = [
        unplaced_run(
            None,
            made(norm, 1, {BLEU: 30.0}, placement={"option": place}, choices={"placement": place}),
        )
        for norm in ("ln", "bn")
        for place in ("pre", "post")
    ]
    assert [*arranged(placed).axes] == ["placement"]
    assert [*arranged(placed).rows] == ["ln", "bn"]
    tuned = [
        unplaced_run(None, made(norm, 1, {BLEU: 30.0}, batch_size=size, optim={"lr": rate}))
        for norm in ("ln", "bn")
        for size, rate in ((8, 1e-3), (128, 4e-3))
    ]
    assert [*arranged(tuned).axes] == ["batch_size"]
    assert [*arranged(tuned).rows] == ["ln", "bn"]


def test_the_figure_of_the_how_to_matches_the_committed_records(tmp_path):
    from scripts.sweep_picture import PATH, picture

    assert picture(tmp_path / "batch_size.svg").read_bytes() == PATH.read_bytes()


def test_headings_of_scores_use_the_names_of_papers():
    names = {
        **{
            "test/bleu": "BLEU",
            "test_2017/chrf": "test 2017 chrF",
            "valid/loss": "validation loss",
        },
        **{
            "test/accuracy": "test accuracy",
            "stability/tid/mean": "distance from the running mean",
        },
        **{
            "valid/steps_to/bleu_20": "steps to BLEU 20",
            "test/batch_size_1/bleu": "BLEU, batch size 1",
        },
    }
    assert {score: heading(score) for score in names} == names


def test_recipes_with_different_budget_limits_are_named_by_their_limit():
    budgets = [{"steps": None, "tokens": 12000}, {"steps": 6, "tokens": None}]
    configs = [config(norm=norm, budget=each) for each in budgets for norm in ("ln", "bn")]
    assert [each.text for each in recipes(configs)] == ["12,000 tokens", "6 steps"]
    configs = [config(budget=each) for each in budgets]
    assert [each.text for each in names(configs)] == ["ln, 12,000 tokens", "ln, 6 steps"]
