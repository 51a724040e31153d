"""The axes of a table's grid."""

from normlab.reports.tables.axes import Axis, table_axes, values_at
from tests.reports.handmade import SIZES, sweep


def test_an_axis_has_its_values_in_order_and_places_numbers_by_their_size():
    (axis,) = table_axes(sweep(dict(reversed(SIZES.items()))))
    assert axis == Axis("batch_size", ("8", "32", "128")) and axis.numeric
    assert (axis.name, axis.position("32")) == ("batch size", 32.0)
    words = Axis("placement", ("pre", "post"))
    assert not words.numeric and words.position("post") == 1.0


def test_an_axis_with_a_single_value_is_not_drawn():
    assert table_axes(sweep({("ln", "8"): 30.0, ("bn", "8"): 28.0})) == []
    assert values_at("batch_size=8 placement=pre", ["placement"]) == {"placement": "pre"}
