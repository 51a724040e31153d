"""Points and differences in words."""

from normlab.reports.tables.answer_words import DifferenceWords, PointWords, count_text
from normlab.reports.tables.axes import Axis
from normlab.reports.tables.standing import PointDifference, Standing


def test_two_points_are_listed_and_more_are_a_range_on_the_only_axis():
    sizes = [f"batch_size={size}" for size in (8, 32, 1024)]
    words = PointWords([Axis("batch_size", ("8", "32", "1024"))], ["batch_size"])
    assert words.at(sizes[:2]) == "at batch size 8 and 32 "
    assert words.next_at(sizes) == "at 8 to 1,024 "
    places = PointWords([Axis("placement", ("pre", "post"))], ["placement"])
    assert places.at(["placement=pre"]) == "with placement pre, "
    assert PointWords([], []).at(sizes) == ""


def test_a_difference_in_bleu_has_one_decimal_unless_that_is_zero():
    gaps = [PointDifference("", Standing.BELOW, gap) for gap in (-1.234, -0.034)]
    words = DifferenceWords("test/bleu")
    assert words.sizes(gaps) == "0.03 to 1.2 BLEU"
    assert words.interval(PointDifference("", Standing.OPEN, 0.7, (-0.1, 1.5))) == (
        " (+0.7 [-0.1, +1.5])"
    )
    assert [*map(count_text, (2, 12, 1300))] == ["two", "twelve", "1,300"]
