from normlab.reports.figures.kinds import KINDS, absent_panels
from normlab.reports.figures.over_training import PANELS, over_training
from normlab.reports.figures.runs import experiments
from normlab.reports.figures.style import LIGHT
from tests.reports.curves import drawn, inf, nan, points, run, texts

TID = "stability/tid/mean"


def rows(**figures):
    return [
        {"step": 10 * (index + 1), **dict(zip(figures, values, strict=True))}
        for index, values in enumerate(zip(*figures.values(), strict=True))
    ]


def draw(*runs):
    figure = over_training(experiments(runs), LIGHT)
    return {axes.get_title(loc="left"): axes for axes in figure.axes}


def test_each_figure_that_a_run_has_is_a_panel_and_no_other():
    axes = draw(
        run(rows(**{TID: [0.5, 0.4], "train/grad_norm": [1.0, 2.0]}), norm="bn"),
        run(rows(**{"train/grad_norm": [3.0, 4.0]}), norm="ln"),
    )
    assert list(axes) == ["Gradient norm", "TID, mean"]
    assert [points(line) for line in drawn(axes["Gradient norm"], "mean")] == [
        [(10, 1.0), (20, 2.0)],
        [(10, 3.0), (20, 4.0)],
    ]
    assert [points(line) for line in drawn(axes["TID, mean"], "mean")] == [[(10, 0.5), (20, 0.4)]]
    assert texts(axes["TID, mean"]) == ["bn"]
    assert axes["TID, mean"].get_ylabel() == "relative distance"


def test_all_panels_have_title_unit_and_lines():
    axes = draw(run(rows(**{panel.figure: [1.0, 2.0] for panel in PANELS})))
    assert list(axes) == [panel.title for panel in PANELS]
    assert all(each.get_ylabel() and each.get_xlabel() for each in axes.values())
    assert all(len(drawn(each, "mean")) == 1 for each in axes.values())


def test_rows_in_which_the_probe_did_not_look_are_no_gap_and_not_finite_values_are_left_out():
    sparse = [{"step": 10, TID: 0.5}, {"step": 20}, {"step": 30, TID: nan}, {"step": 40, TID: inf}]
    axes = draw(run([*sparse, {"step": 50, TID: 0.3}]))
    assert points(drawn(axes["TID, mean"], "mean")[0]) == [(10, 0.5), (50, 0.3)]


def test_values_that_spread_widely_have_a_logarithmic_axis():
    axes = draw(run(rows(**{TID: [0.01, 1.0], "train/grad_norm": [1.0, 2.0]})))
    assert axes["TID, mean"].get_yscale() == "log"
    assert axes["Gradient norm"].get_yscale() == "linear"


def test_seeds_and_their_mean():
    runs = [run(rows(**{TID: [value, 1.0]}), seed=seed) for seed, value in ((1, 1.0), (2, 3.0))]
    axes = draw(*runs)["TID, mean"]
    assert points(drawn(axes, "mean")[0]) == [(10, 2.0), (20, 1.0)]
    assert len(drawn(axes, "seed")) == 2


def test_the_probes_of_panels_left_out_are_named():
    some = experiments([run(rows(**{TID: [0.5], "train/grad_norm": [1.0]}))])
    assert absent_panels(some) == [
        "updates",
        "fluctuation",
        "statistics_gradient",
        "activations",
        "residual",
        "attention",
    ]
    able, others = KINDS["over_training"].split(experiments([run()]))
    assert able == []
    assert others == {"no rows with finite figures": ["ln"]}
