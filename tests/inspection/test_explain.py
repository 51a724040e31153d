"""What `normlab explain` finds out about norms on the articles' tensor, and what it prints."""

import math
import re

import pytest
import torch

from normlab.commands.explain import main
from normlab.config.registry import option_names, options
from normlab.inspection.explain.norm_text import group_name
from normlab.inspection.explain.placement_steps import wiring
from normlab.inspection.norm.example_norm import example_norm
from normlab.inspection.norm.pooling import dependence, pooled_cells
from normlab.inspection.norm.worked_example import worked_groups
from normlab.norms.axes import AXES

DOCUMENT = torch.tensor(
    [[[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]], [[-1, 0, 1, 2], [3, 4, 5, 6], [7, 8, 9, 10]]]
).double()
OPTIONS = {option.name: option for option in options("norm")}


def worked(name):
    """Return a norm and its groups on the articles' tensor."""
    norm = example_norm(OPTIONS[name]).make()
    return norm, worked_groups(norm, pooled_cells(norm, dependence(norm)))


@pytest.mark.parametrize("name", ["ln", "bn", "bn_position", "bn_sample", "in", "seqn", "global"])
def test_groups_have_the_moments_of_their_axes_and_the_outputs_follow(name):
    norm, found = worked(name)
    over = [AXES.index(axis) for axis in norm.pools]
    mean = DOCUMENT.mean(over, keepdim=True)
    variances = ((DOCUMENT - mean) ** 2).mean(over).flatten().tolist()
    assert [g.mean for g in found] == pytest.approx(mean.flatten().tolist())
    assert [g.var for g in found] == pytest.approx(variances)
    for group in found:
        assert group.line == pytest.approx((group.mean, math.sqrt(group.var + 1e-5)), abs=1e-6)


def test_the_articles_own_numbers():
    (sample, *_) = worked("bn_sample")[1]
    assert (group_name(sample.cells), sample.mean) == ("token 1", 1.5)  # mean([1,2,3,4,-1,0,1,2])
    assert worked("rms")[1][0].line == pytest.approx((0, math.sqrt(7.5)), abs=1e-4)
    first = worked("bn")[1][0]  # after one batch: a tenth of its mean 4 and variance 14 over n - 1
    assert first.line_in_eval == pytest.approx((0.4, math.sqrt(0.9 + 1.4 + 1e-5)))
    assert worked("ln")[1][0].line_in_eval == pytest.approx(worked("ln")[1][0].line)
    assert worked("derf")[1][0].line is None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "ln",
            [
                "6 groups of 4 values.",
                "`weight` and the shift `bias` are learned",
                "padding counts no",
            ],
        ),
        ("ssnorm", ["The factor `weight` is learned, one value. ("]),
        ("in", ["in eval it sees earlier tokens, later tokens"]),
        ("bn", ["training it sees earlier tokens, later tokens, other samples", "include, fill"]),
        (
            "bn_sample",
            ["training it sees its token's features, other samples", "in eval it sees only"],
        ),
        ("gn", ["12 groups of 2 values, smaller", "groups=8 does not fit", "features 1-2"]),
        ("prepbn", ["shown at step 500", "other samples", "in eval it sees only its own value"]),
        ("pn", ["shown at step 0 of 1,000"]),
        ("none", ["Pools over nothing", "parameters none"]),
    ],
)
def test_a_norm_is_explained_in_words(capsys, name, said):
    out = " ".join(printed(capsys, name).split())
    assert out.startswith(f"{name}: ") and f"normlab train norm={name}" in out
    assert all(text in out for text in said)


def printed(capsys, *argv):
    assert main(list(argv)) == 0
    return capsys.readouterr().out


def test_a_norm_may_be_typed_as_for_training(capsys):
    assert printed(capsys, "norm=layernorm") == printed(capsys, "ln")


def test_the_overview_has_every_option_and_fits_a_screen(capsys):
    lines = printed(capsys).splitlines()
    rows = {words[0]: words for words in map(str.split, lines) if words}
    assert set(option_names("norm")) <= set(rows) and max(map(len, lines)) <= 80
    assert rows["bn"][1:4] == ["batch,", "position", "yes"] and rows["ln"][-2:] == ["1,024", "0"]


def test_several_norms_are_drawn_and_compared(capsys):
    out = printed(capsys, "ln", "bn_sample")
    lines = [line.split() for line in out.splitlines()]
    assert ["token", "1", "[*1]", "[2]", "[3]", "[4]", "[-1]", "[0]", "[1]", "[2]"] in lines
    assert ["token", "2", "5", "6", "7", "8", "3", "4", "5", "6"] in lines
    assert re.search(r"token 1 +1 2 3 4 -1 0 1 2 +1.5 +2.25 +\(x - 1.50\) / 1.50", out)
    assert re.search(r"one at a time +yes +in eval", out)


def test_an_unknown_norm_names_the_options():
    with pytest.raises(ValueError, match=r"no option 'lyernorm' of the group 'norm'"):
        main(["lyernorm"])


@pytest.mark.parametrize(
    ("name", "axes", "values"),
    [
        ("bn", "N, H, W", 8),
        ("ln", "C", 4),
        ("in", "H, W", 4),
        ("seqn", "C, H, W", 16),
        ("gn_sample", "part of C, H, W", 8),
        ("none", "nothing", 1),
    ],
)
def test_the_values_of_images_that_a_norm_pools(capsys, name, axes, values):
    out = printed(capsys, name, "--layout", "images")
    assert f"Pools over {axes}: {values} values" in " ".join(out.split())
    drawing = out[out.index("channel 1") :]
    assert drawing.count("#") == values - 1 and drawing.count("*") == 1


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("pre", "norm -> attention -> add -> norm -> feed-forward -> add"),
        ("post", "attention -> add -> norm -> feed-forward -> add -> norm"),
        ("sandwich", "norm -> attention -> norm -> add -> norm -> feed-forward -> norm -> add"),
        ("reordered", "attention -> norm -> add -> feed-forward -> norm -> add"),
        ("resi_dual", "more than one stream"),
    ],
)
def test_a_placement_is_drawn_with_the_order_of_its_steps(name, steps):
    found = wiring(next(option for option in options("placement") if option.name == name))
    assert found.properties["an encoder layer"].startswith(steps)
    assert any("sub-layer" in line for line in found.sections[0].drawing)
    assert found.properties["after the last layer"] == ("no norm" if name == "post" else "a norm")


def test_two_placements_are_drawn_and_compared(capsys):
    out = printed(capsys, "placement=pre", "post")
    assert out.index("x ---+--> norm --> sub-layer") < out.index("x ---+--> sub-layer --> dropout")
    assert "Steps" in out and "normlab train placement=post" in out
    with pytest.raises(ValueError, match=r"no option 'prae' of .*placement"):
        main(["placement=prae"])


def test_the_marks_of_a_class_are_z_scores(capsys):
    out = printed(capsys, "bn", "ln", "--table", "marks")
    rows = [line.split() for line in out.splitlines() if line.startswith("Ming")]
    # The class's marks in maths: 95 75 55; Ming's marks: 95 60 85.
    assert rows[0][4] == f"{20 / (800 / 3) ** 0.5:+.2f}"
    assert rows[1][4] == f"{15 / (650 / 3) ** 0.5:+.2f}"
    with pytest.raises(ValueError, match="show norms"):
        main(["placement=pre", "--table", "marks"])
