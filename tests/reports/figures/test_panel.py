"""The content of a chart."""

from normlab.reports.figures.panel import Panel, Series


def line(*ys, **changes):
    """Return a line over x = 1, 2, ..."""
    curves = [{float(x): y for x, y in enumerate(ys, 1)}]
    return Series.of_seeds(changes.get("row", "ln"), changes.get("facet", ""), "", curves)


def test_a_mean_is_taken_only_where_all_seeds_still_running_have_a_value():
    series = Series.of_seeds("ln", "", "", [{1.0: 2.0, 2.0: 4.0, 3.0: 5.0}, {1.0: 4.0}])
    assert (series.x, series.mean, series.n) == ((1.0, 2.0, 3.0), (3.0, 4.0, 5.0), (2, 1, 1))
    assert (series.low[0], series.high[0]) == (2.0, 4.0)
    gap = Series.of_seeds("ln", "", "", [{1.0: 2.0, 3.0: 5.0}, {1.0: 4.0, 2.0: 1.0, 3.0: 1.0}])
    assert gap.x == (1.0, 3.0), "one seed has no value at 2"


def test_an_axis_is_logarithmic_from_a_ratio_of_ten_and_never_with_values_below_zero():
    assert Panel("m", "M", "", (line(1.0, 10.0),)).logarithmic
    assert not Panel("m", "M", "", (line(1.0, 9.0),)).logarithmic
    assert not Panel("m", "M", "", (line(-1.0, 10.0),)).logarithmic
    assert not Panel("m", "M", "", (line(1.0, 10.0),), log_from=None).logarithmic


def test_the_text_for_readers_who_cannot_see_a_chart_has_the_last_value_of_each_line():
    panel = Panel("m", "Loss", "", (line(5.0, 4.0), line(6.0, 3.0, row="bn", facet="encoder")))
    assert panel.facets == ("", "encoder")
    assert panel.summary.endswith("At its end: ln: 4 at 2; bn, encoder: 3 at 2.")
    names = Panel("m", "Loss", "", (line(5.0, 4.0),), ticks=(1.0, 2.0), tick_names=("pre", "post"))
    assert "ln: 4 at post" in names.summary
