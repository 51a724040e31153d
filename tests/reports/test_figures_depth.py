from normlab.reports.figures.depth import depth
from normlab.reports.figures.style import DARK, LIGHT
from tests.reports.curves import drawn, nan, points, texts


def rows(*values):
    return [
        {"placement": placement, "layers": layers, "seed": seed, "norm": norm}
        for placement, layers, seed, norm in values
    ]


STUDY = rows(
    ("post", 12, 1, 6.0),
    ("post", 6, 1, 2.0),
    ("post", 6, 2, 4.0),
    ("post", 12, 2, 10.0),
    ("pre", 6, 1, 0.5),
    ("pre", 12, 1, 0.25),
    ("pre", 12, 2, nan),
)


def test_the_mean_over_seeds_and_the_band_from_the_smallest_to_the_largest():
    (axes,) = depth(STUDY).axes
    pre, post = drawn(axes, "mean")
    assert points(pre) == [(6, 0.5), (12, 0.25)], "what is not finite is left out"
    assert points(post) == [(6, 3.0), (12, 8.0)]
    assert texts(axes) == ["pre", "post"]
    band = axes.collections[1].get_paths()[0].vertices
    assert {(6.0, 2.0), (6.0, 4.0), (12.0, 6.0), (12.0, 10.0)} <= {tuple(v) for v in band.tolist()}
    assert axes.get_yscale() == "log"
    assert list(axes.get_xticks()) == [6, 12]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("layers", "gradient norm")


def test_the_two_placements_differ_in_hue_stroke_and_mark_in_both_themes():
    for theme in (LIGHT, DARK):
        pre, post = drawn(depth(STUDY, theme).axes[0], "mean")
        assert pre.get_color() != post.get_color()
        assert pre.get_linestyle() != post.get_linestyle()
        assert pre.get_marker() != post.get_marker()
