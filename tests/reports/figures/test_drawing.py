"""Charts drawn with matplotlib, with every number from handmade runs."""

import math
from collections.abc import Iterable
from typing import Any

import matplotlib
import pytest
from msgspec.structs import replace

from normlab.records.record import Outcome
from normlab.reports.arrangement.unplanned import arrange
from normlab.reports.figures import drawing
from normlab.reports.figures.line_styles import DARK, LIGHT, row_styles
from normlab.reports.figures.paper_figures import KINDS
from normlab.reports.runs import Run, unplaced_run
from tests.records.examples import record

nan, inf = math.nan, math.inf
ENCODER = ["encoder.embedding", "encoder.0", "encoder.1", "encoder.final"]
DECODER = ["decoder.embedding", "decoder.0", "decoder.1", "decoder.final", "output"]
PROBES = {"gradients": {}, "tid": {}, "residual": {}}
DIVERGED = Outcome("diverged", 40, "loss is nan", "decoder.layers.1.ffn_residual.norm")


def run(
    rows: Iterable[dict[str, Any]] = (),
    *,
    stability: dict[str, float] | None = None,
    outcome: Outcome | None = None,
    **changes: Any,
) -> Run:
    changes = {"observe": {"probe": PROBES}, **changes}
    made = record(**changes)
    end = outcome or Outcome("finished", 100)
    return unplaced_run(None, replace(made, stability=stability or {}, outcome=end), list(rows))


def loss_rows(losses: dict[int, float]) -> list[dict[str, Any]]:
    return [{"step": step, "train/loss": loss} for step, loss in losses.items()]


def by_layer(name: str, factor: float = 1.0) -> dict[str, float]:
    """Return one value per layer, doubling from layer to layer, in alphabetical order."""
    places = [*ENCODER, *DECODER]
    values = {f"{name}/{place}": factor * 2.0**index for index, place in enumerate(places)}
    return dict(sorted(values.items()))


def drawn(axes: Any) -> list[Any]:
    """Return the lines of a panel, without the crosses of divergences."""
    return [line for line in axes.get_lines() if line.get_label() != "divergence"]


def crosses(axes: Any) -> list[Any]:
    return [line for line in axes.get_lines() if line.get_label() == "divergence"]


def points(line: Any) -> list[tuple[float, float]]:
    return list(zip(map(float, line.get_xdata()), map(float, line.get_ydata()), strict=True))


def named(figure: Any) -> list[str]:
    """Return the entries of a figure's legend."""
    return [text.get_text() for text in figure.legends[0].get_texts()]


def draw(*runs, kind="loss", theme=LIGHT):
    found = arrange(runs).runs
    return drawing.draw(KINDS[kind].panels(found), row_styles(found), theme)


def test_each_run_is_a_line_and_the_axis_has_the_unit_of_the_loss():
    figure = draw(
        run(loss_rows({10: 5.0, 20: 4.0, 30: 3.5}), norm="ln"),
        run(loss_rows({10: 6.0, 20: 4.5, 30: 3.0}), norm="bn"),
    )
    (axes,) = figure.axes
    assert axes.get_ylabel() == "Training loss (nats per token)"
    ln, bn = drawn(axes)
    assert points(ln) == [(10, 5.0), (20, 4.0), (30, 3.5)]
    assert points(bn) == [(10, 6.0), (20, 4.5), (30, 3.0)]
    assert named(figure) == ["ln", "bn"]


def test_seeds_are_drawn_as_a_band_around_their_mean():
    rows = [*loss_rows({10: 5.0, 20: 4.0}), {"step": 20, "valid/loss": 4.25}]
    train, valid = draw(run(rows, seed=1), run(loss_rows({10: 7.0, 20: 5.0}), seed=2)).axes
    (mean,) = drawn(train)
    assert points(mean) == [(10, 6.0), (20, 4.5)]
    (band,) = train.collections
    reach = band.get_paths()[0].get_extents()
    assert (reach.y0, reach.y1) == (4.0, 7.0)
    assert points(drawn(valid)[0]) == [(20, 4.25)] and not valid.collections
    assert "lowest to highest of 2 seeds" in named(train.figure)


def test_a_divergence_is_a_cross_at_its_step_and_the_last_loss():
    (axes,) = draw(run(loss_rows({10: 5.0, 20: 6.0, 30: nan}), outcome=DIVERGED)).axes
    (cross,) = crosses(axes)
    assert points(cross) == [(40, 6.0)]
    assert named(axes.figure) == ["ln", "divergence"] and axes.get_xlim()[1] > 40
    lost = run(outcome=DIVERGED, norm="bn")  # before the first row
    (axes,) = draw(lost, run(loss_rows({10: 5.0}))).axes
    (cross,) = crosses(axes)
    assert points(cross) == [(40, 1.0)]
    assert cross.get_transform() == axes.get_xaxis_transform(), (
        "the cross is at the top, independent of the losses"
    )
    assert "bn" in named(axes.figure) and draw(lost).axes


def test_non_finite_losses_are_left_out_and_a_steep_fall_gives_a_log_axis():
    (axes,) = draw(run(loss_rows({10: 5.0, 20: nan, 30: inf, 40: 4.0}))).axes
    assert points(drawn(axes)[0]) == [(10, 5.0), (40, 4.0)] and axes.get_yscale() == "linear"
    assert draw(run(loss_rows({10: 10.0, 20: 2.0}))).axes[0].get_yscale() == "log"
    assert KINDS["loss"].panels([run(loss_rows({10: nan}))]) == ()


def test_layers_are_ordered_by_depth_and_encoder_and_decoder_share_a_scale():
    name = "stability/tid/mean"
    runs = [
        run(stability=by_layer(name, factor), norm=norm)
        for norm, factor in (("ln", 1.0), ("bn", 3.0))
    ]
    encoder, decoder = draw(*runs, kind="tid_by_layer").axes
    assert encoder.get_title(loc="left") == "Distance from the running mean, encoder"
    values = [[y for _, y in points(line)] for line in drawn(encoder)]
    assert values == [[1.0, 2.0, 4.0, 8.0], [3.0, 6.0, 12.0, 24.0]]
    names_of = [[text.get_text() for text in axes.get_xticklabels()] for axes in (encoder, decoder)]
    assert names_of[0] == ["embedding", "layer 0", "layer 1", "final"]
    assert names_of[1] == ["embedding", "layer 0", "layer 1", "final", "output"]
    assert encoder.get_ylim() == decoder.get_ylim() and encoder.get_yscale() == "log"
    assert len(ENCODER) + len(DECODER) == sum(map(len, names_of))


@pytest.mark.parametrize(("norm", "shown"), [("a$x$b", "a$x$b"), ("a\u202eb\x1b", r"a\u202eb\x1b")])
def test_names_are_not_typeset_as_formulas_and_control_characters_are_escaped(norm, shown):
    (legend,) = draw(run(loss_rows({10: 5.0}), norm=norm)).legends
    (text,) = legend.get_texts()
    assert text.get_parse_math() is False and text.get_text() == shown


def test_figures_are_reproducible_byte_for_byte_and_the_dark_theme_differs(tmp_path):
    rows = loss_rows({10: 50.0, 20: 0.00002, 30: 3.0})

    def write(name, theme=LIGHT):
        drawing.write(
            draw(run(rows), run(rows, norm="bn"), theme=theme), tmp_path / name, title="x"
        )
        return (tmp_path / name).read_bytes()

    first = write("a.svg")
    with matplotlib.rc_context({"axes.facecolor": "red", "font.size": 20, "lines.marker": "x"}):
        assert write("b.svg") == first, "a user's matplotlib settings have no effect"
    assert write("c.svg", DARK) != first
    assert first.startswith(b"<?xml") and b"dc:date" not in first and b"<text" not in first
    assert write("a.png").startswith(b"\x89PNG")


def test_a_single_plot_has_its_score_on_the_axis_and_no_type_3_fonts(tmp_path):
    runs = arrange([run(loss_rows({10: 5.0}))]).runs
    panels = KINDS["loss"].panels(runs)[:1]
    figure = drawing.draw(panels, row_styles(runs), LIGHT)
    (axes,) = figure.axes
    assert axes.get_title(loc="left") == ""
    assert axes.get_ylabel() == "Training loss (nats per token)"
    drawing.write(figure, tmp_path / "loss.pdf", title="loss")
    assert b"/Type3" not in (tmp_path / "loss.pdf").read_bytes()
