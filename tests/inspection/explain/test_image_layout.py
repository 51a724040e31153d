"""The values of images that a norm pools."""

import pytest

from normlab.commands.explain import main


def printed(capsys, *argv):
    assert main(list(argv)) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "axes", "values"),
    [
        ("bn", "N, H, W", 8),
        ("ln", "C", 4),
        ("in", "H, W", 4),
        ("seqn", "C, H, W", 16),
        ("gn_sample", "part of C, H, W", 8),
        ("prms", "part of C", 2),
        ("prepbn", "N, C, H, W", 11),  # half-way from layer norm to batch norm
    ],
)
def test_the_image_layout_marks_the_values_that_a_norm_pools(capsys, name, axes, values):
    out = printed(capsys, name, "--layout", "images")
    assert f"Pools over {axes}: {values} values" in " ".join(out.split())
    drawing = out[out.index("channel 1") :]
    assert drawing.count("#") == values - 1 and drawing.count("*") == 1


def test_a_norm_that_pools_nothing_shares_no_statistics(capsys):
    out = printed(capsys, "none", "--layout", "images")
    assert "Pools over nothing. Two images" in " ".join(out.split())
    assert out.count("#") == 1  # in the legend


def test_a_norm_that_changes_during_training_is_shown_half_way(capsys):
    out = printed(capsys, "prepbn", "--layout", "images")
    assert "Shown at step 500 of 1,000." in " ".join(out.split())
