import pytest

from normlab.records.depth import in_depth_order
from normlab.reports.figures.kinds import KINDS
from normlab.reports.figures.runs import experiments
from normlab.reports.figures.style import LIGHT
from tests.reports.curves import by_layer, drawn, inf, nan, points, run, texts

NORM = "stability/gradients/norm"
TID = ("stability/tid/mean", "stability/tid/var")


def draw(kind, *runs):
    return KINDS[kind].draw(experiments(runs), LIGHT)


def ticks(axes):
    return [text.get_text() for text in axes.get_xticklabels()]


def test_layers_stand_in_the_order_of_depth_encoder_and_decoder_apart():
    encoder, decoder = draw("gradient_by_layer", run(stability=by_layer(NORM))).axes
    assert encoder.get_title(loc="left") == "Gradient norm, encoder"
    assert decoder.get_title(loc="left") == "Gradient norm, decoder"
    assert ticks(encoder) == ["embedding", "layer 0", "layer 1", "final"]
    assert ticks(decoder) == ["embedding", "layer 0", "layer 1", "final", "output"]
    assert points(drawn(encoder, "mean")[0]) == [(0, 1), (1, 2), (2, 4), (3, 8)]
    assert points(drawn(decoder, "mean")[0]) == [(0, 16), (1, 32), (2, 64), (3, 128), (4, 256)]
    assert encoder.get_ylim() == decoder.get_ylim()
    assert encoder.get_yscale() == decoder.get_yscale() == "log"
    assert encoder.get_ylabel() == "norm before clipping"
    assert texts(encoder) == texts(decoder) == ["ln"]


def test_tid_has_a_row_of_panels_for_mean_and_for_variance():
    stability = by_layer(TID[0]) | by_layer(TID[1], 1000.0)
    axes = draw("tid_by_layer", run(stability=stability)).axes
    assert [each.get_title(loc="left") for each in axes] == [
        "TID of the mean, encoder",
        "TID of the mean, decoder",
        "TID of the variance, encoder",
        "TID of the variance, decoder",
    ]
    assert points(drawn(axes[2], "mean")[0])[0] == (0, 1000)
    assert axes[2].get_ylim() == axes[3].get_ylim() != axes[0].get_ylim()


def test_seeds_are_averaged_and_shown():
    runs = [run(stability=by_layer(NORM, factor), seed=seed) for seed, factor in ((1, 1), (2, 3))]
    figure = draw("gradient_by_layer", *runs)
    assert points(drawn(figure.axes[0], "mean")[0])[:2] == [(0, 2.0), (1, 4.0)]
    assert len(drawn(figure.axes[0], "seed")) == 2
    assert "mean of the seeds" in figure.texts[0].get_text()


def test_what_is_not_finite_is_left_out():
    stability = {f"{NORM}/encoder.0": 1.0, f"{NORM}/encoder.1": nan, f"{NORM}/encoder.2": 4.0}
    (axes,) = draw("gradient_by_layer", run(stability=stability)).axes
    assert points(drawn(axes, "mean")[0]) == [(0, 1.0), (1, 4.0)]
    lost = run(stability={f"{NORM}/encoder.0": inf})
    assert not KINDS["gradient_by_layer"].has(lost)


def test_a_model_of_one_stack_has_one_panel_and_names_its_sites():
    sites = ["encoder.0.ffn", "encoder.0.self", "encoder.final", "encoder.embedding"]
    stability = {f"stability/residual/rms/{site}": 1.0 for site in sites}
    (axes,) = draw("residual_by_layer", run(stability=stability)).axes
    assert ticks(axes) == ["embedding", "0 self", "0 ffn", "final"]
    assert [line.get_xdata()[0] for line in drawn(axes, "border")] == [0.5, 2.5]


def test_of_many_sites_only_the_first_of_each_layer_is_named():
    sites = [f"decoder.{n}.{part}" for n in range(12) for part in ("self", "cross", "ffn")]
    stability = {f"stability/residual/rms/{site}": 1.0 for site in sites}
    (axes,) = draw("residual_by_layer", run(stability=stability)).axes
    assert ticks(axes) == [str(number) for number in range(12)]
    assert list(axes.get_xticks()) == list(range(0, 36, 3))


def test_an_experiment_looks_the_same_in_a_figure_that_another_is_missing_from():
    stability = by_layer(NORM)
    both = experiments(
        [
            run(norm="ln", stability=stability),
            run(norm="bn", stability=stability | by_layer(TID[0])),
        ]
    )
    able, others = KINDS["tid_by_layer"].split(both)
    assert [experiment.name for experiment in able] == ["bn"]
    assert list(others.values()) == [["ln"]]
    shown = drawn(KINDS["tid_by_layer"].draw(able, LIGHT).axes[0], "mean")[0]
    _, other = drawn(KINDS["gradient_by_layer"].draw(both, LIGHT).axes[0], "mean")
    assert shown.get_color() == other.get_color()
    assert shown.get_marker() == other.get_marker()


@pytest.mark.parametrize("kind", ["gradient_by_layer", "tid_by_layer", "residual_by_layer"])
def test_the_missing_probe_is_named(kind):
    probe = KINDS[kind].probe
    without = run(observe={"probe": {"spikes": {}}})
    _, others = KINDS[kind].split(experiments([without]))
    assert others == {f"trained without the probe {probe}; probe=full has it": ["ln"]}
    _, others = KINDS[kind].split(experiments([run()]))
    assert others == {f"the probe {probe} found nothing to measure in this model": ["ln"]}


def test_the_order_of_depth():
    ordered = [
        "encoder.embedding",
        "encoder.0.self",
        "encoder.0.ffn",
        "encoder.2.self",
        "encoder.10.self",
        "encoder.final",
        "decoder.embedding",
        "decoder.0.self",
        "decoder.0.cross",
        "decoder.0.ffn",
        "decoder.0.ffn_inner",
        "decoder.final",
        "output",
        "other.place",
    ]
    assert in_depth_order(sorted(ordered)) == ordered
    assert in_depth_order(reversed(ordered)) == ordered
