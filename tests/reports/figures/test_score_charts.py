"""Charts of scores over the axes of a table."""

import math

import pytest

from normlab.reports.figures.drawing import draw
from normlab.reports.figures.line_styles import LIGHT, row_styles
from normlab.reports.figures.score_charts import by_axis
from normlab.reports.pages.chart_json import chart
from tests.reports.handmade import BLEU, SIZES, build, diverged, made, run, study, sweep


def test_scores_are_drawn_over_a_logarithmic_batch_size_with_a_band():
    ((axis, (panel,)),) = by_axis(sweep(SIZES)).items()
    assert axis.name == "batch size" and panel.logarithmic_across and panel.ticks == (8, 32, 128)
    ln, bn = panel.series
    assert ln.mean == pytest.approx((30.1, 30.1, 31.1)) and bn.high[0] == pytest.approx(28.4)
    styles = row_styles([run(made(norm, 1), norm) for norm in ("ln", "bn")])
    (axes,) = draw([panel], styles, LIGHT).axes
    assert axes.get_xscale() == "log" and len(axes.collections) == 2
    assert [text.get_text() for text in axes.get_xticklabels()] == ["8", "32", "128"]


def test_scores_over_an_axis_of_words_are_drawn_without_a_line():
    words = {("ln", "pre"): 3.0, ("bn", "pre"): 3.5, ("ln", "post"): 3.0, ("bn", "post"): 4.0}
    ((_, (panel,)),) = by_axis(sweep(words, "placement")).items()
    styles = row_styles([run(made(norm, 1), norm) for norm in ("ln", "bn")])
    (axes,) = draw([panel], styles, LIGHT).axes
    assert not panel.joined and panel.tick_names == ("pre", "post")
    assert {line.get_linestyle() for line in axes.get_lines()} == {"None"}
    assert [text.get_text() for text in axes.get_xticklabels()] == ["pre", "post"]


def test_a_point_with_diverged_seeds_has_a_cross_for_each_of_them():
    values = {size: (f"batch_size={size}",) for size in ("8", "32")}
    found = [
        run(made("ln", seed, {BLEU: 30.0 + seed}), "ln", seed, f"batch_size={size}")
        for size in values
        for seed in (1, 2)
    ]
    found[0] = run(diverged(found[0].record, 3), "ln", 1, "batch_size=8")
    table = build(study(grid={"batch_size": values}, columns=(BLEU,)), found)
    (panel,) = next(iter(by_axis(table).values()))
    (line,) = panel.series
    assert line.lost == ((1, 8.0, 32.0),) and line.n == (1, 2)
    (cross,) = chart(panel)["ended"]
    assert (cross["seed"], cross["x"], cross["mean"]) == (1, 8.0, 32.0)
    found[1] = run(made("ln", 2, {BLEU: math.inf}), "ln", 2, "batch_size=8")
    (panel,) = next(iter(by_axis(build(study(grid={"batch_size": values}), found)).values()))
    assert panel.series[0].lost == ((1, 8.0, None),) and chart(panel)["ended"] == []


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
