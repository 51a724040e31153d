import pytest

from normlab.records.record import Outcome
from normlab.reports.figures.loss import has_loss, loss, loss_unit
from normlab.reports.figures.runs import experiments
from normlab.reports.figures.style import DARK, LIGHT
from tests.records.examples import record
from tests.reports.curves import boxes, drawn, inf, loss_rows, nan, overlapping, points, run, texts

DIVERGED = Outcome("diverged", 40, "loss is nan", "decoder.layers.1.ffn_residual.norm")


def draw(*runs, theme=LIGHT):
    return loss(experiments(runs), theme)


def test_a_line_is_the_run_and_its_name_stands_at_its_end():
    figure = draw(
        run(loss_rows({10: 5.0, 20: 4.0, 30: 3.5}), norm="ln"),
        run(loss_rows({10: 6.0, 20: 4.5, 30: 3.0}), norm="bn"),
    )
    (axes,) = figure.axes
    assert axes.get_title(loc="left") == "Training loss"
    assert axes.get_ylabel() == "nats per token"
    ln, bn = drawn(axes, "mean")
    assert points(ln) == [(10, 5.0), (20, 4.0), (30, 3.5)]
    assert points(bn) == [(10, 6.0), (20, 4.5), (30, 3.0)]
    assert texts(axes) == ["ln", "bn"]
    assert axes.get_legend() is None
    heights = {text.get_text(): text.get_window_extent().y0 for text in axes.texts}
    assert heights["ln"] > heights["bn"], "the name of the line that ends higher stands higher"


def test_the_axis_names_what_the_task_counts():
    pictures = record(data={"unit": "pictures"})
    assert loss_unit([pictures]) == "nats per picture"
    assert loss_unit([pictures, record()]) == "nats"


def test_lines_differ_in_hue_stroke_and_mark_so_that_grey_print_tells_them_apart():
    runs = [run(loss_rows({1: 2.0, 2: 1.0}), norm=norm) for norm in ("ln", "bn", "rms", "gn")]
    means = drawn(draw(*runs).axes[0], "mean")
    for look in (
        lambda line: line.get_color(),
        lambda line: str(line._dash_pattern),
        lambda line: line.get_marker(),
    ):
        assert len({look(line) for line in means}) == 4


def test_validation_has_a_panel_where_a_run_has_validated():
    rows = [*loss_rows({10: 5.0, 20: 4.0}), {"step": 20, "valid/loss": 4.25}]
    train, valid = draw(run(rows)).axes
    assert valid.get_title(loc="left") == "Validation loss"
    (line,) = drawn(valid, "mean")
    assert points(line) == [(20, 4.25)]
    assert texts(valid) == texts(train) == ["ln"]


def test_seeds_are_faint_and_their_mean_bold_in_one_colour():
    figure = draw(
        run(loss_rows({10: 5.0, 20: 4.0}), seed=1), run(loss_rows({10: 7.0, 20: 5.0}), seed=2)
    )
    (axes,) = figure.axes
    (mean,) = drawn(axes, "mean")
    seeds = drawn(axes, "seed")
    assert points(mean) == [(10, 6.0), (20, 4.5)]
    assert [points(line) for line in seeds] == [[(10, 5.0), (20, 4.0)], [(10, 7.0), (20, 5.0)]]
    assert {line.get_color() for line in seeds} == {mean.get_color()}
    assert all(line.get_alpha() < 0.5 and line.get_linewidth() < 1 for line in seeds)
    assert "faint: seeds" in figure.texts[0].get_text()


def test_a_spike_is_a_ring_at_each_row_in_which_the_count_grows():
    losses = {10: 5.0, 20: 6.5, 30: 4.0, 40: 7.0}
    figure = draw(run(loss_rows(losses, spikes=(20, 40))))
    (rings,) = drawn(figure.axes[0], "spike")
    assert points(rings) == [(20, 6.5), (40, 7.0)]
    assert rings.get_marker() == "o" and rings.get_markerfacecolor() == "none"
    assert "ring: loss spike" in figure.texts[0].get_text()
    assert not drawn(draw(run(loss_rows(losses))).axes[0], "spike")


def test_a_divergence_is_a_cross_at_its_step_and_the_name_says_where():
    figure = draw(run(loss_rows({10: 5.0, 20: 6.0, 30: nan}), outcome=DIVERGED))
    (axes,) = figure.axes
    (cross,) = drawn(axes, "divergence")
    assert points(cross) == [(40, 6.0)], "at the last finite loss"
    assert texts(axes) == ["ln", "diverged at step 40 in", "decoder.1.ffn_residual.norm"]
    assert axes.get_xlim()[1] > 40


def test_a_divergence_before_the_first_row_is_still_shown():
    lost = run(outcome=DIVERGED, norm="bn")
    assert has_loss(lost)
    (axes,) = draw(lost, run(loss_rows({10: 5.0}))).axes
    (cross,) = drawn(axes, "divergence")
    assert points(cross) == [(40, 1.0)]
    assert cross.get_transform() == axes.get_xaxis_transform(), "at the top, whatever the losses"
    assert "bn" in texts(axes)
    (alone,) = draw(lost).axes
    assert list(alone.get_yticks()) == []


def test_the_name_of_several_seeds_counts_those_that_diverged():
    runs = [
        run(loss_rows({10: 5.0, 20: 4.0}), seed=1),
        run(loss_rows({10: 7.0}), seed=2, outcome=DIVERGED),
    ]
    (axes,) = draw(*runs).axes
    assert texts(axes)[:2] == ["ln", "1 of 2 diverged in"]
    (mean,) = drawn(axes, "mean")
    assert points(mean) == [(10, 6.0), (20, 4.0)], "then the mean of the seed that still runs"


def test_what_is_not_finite_is_left_out():
    (axes,) = draw(run(loss_rows({10: 5.0, 20: nan, 30: inf, 40: 4.0}))).axes
    (line,) = drawn(axes, "mean")
    assert points(line) == [(10, 5.0), (40, 4.0)]
    assert not has_loss(run(loss_rows({10: nan, 20: inf})))
    assert not has_loss(run())


def test_one_row_is_a_mark():
    (axes,) = draw(run(loss_rows({10: 5.0}))).axes
    (line,) = drawn(axes, "mean")
    assert points(line) == [(10, 5.0)]
    assert line.get_marker() not in ("", "None", None)
    assert axes.get_xlim()[0] == 0


@pytest.mark.parametrize(("first", "scale"), [(10.0, "log"), (4.0, "linear")])
def test_a_steep_start_makes_the_axis_logarithmic(first, scale):
    (axes,) = draw(run(loss_rows({10: first, 20: 2.0}))).axes
    assert axes.get_yscale() == scale


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_twelve_runs_that_end_alike_keep_their_names_apart_and_in_the_figure(theme):
    norm = "a_norm_with_a_rather_long_name"
    runs = [
        run(loss_rows({10: 5.0, 20: 4.0 + number / 1e4}), norm=f"{norm}_{number}")
        for number in range(12)
    ]
    figure = draw(*runs, theme=theme)
    (axes,) = figure.axes
    assert len(texts(axes)) == 24, "each name folds into two rows"
    assert overlapping(axes) == []
    width = figure.get_window_extent().width
    assert all(text.get_window_extent().x1 <= width for text in axes.texts)
    assert all(text.get_window_extent().x0 > axes.get_window_extent().x1 for text in axes.texts)
    panel = axes.get_window_extent()
    assert all(panel.y0 - 1 <= box.y0 and box.y1 <= panel.y1 + 1 for box in boxes(axes))
    assert all(line.get_color() in theme.hues for line in drawn(axes, "mean"))


def test_a_text_that_looks_like_a_formula_is_none():
    (axes,) = draw(run(loss_rows({10: 5.0}), norm="a$x$b")).axes
    assert axes.texts[0].get_parse_math() is False
