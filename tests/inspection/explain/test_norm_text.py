"""What `normlab explain NORM` prints."""

import re

import pytest

from normlab.commands.explain import main
from normlab.config.registry import option_names


@pytest.mark.parametrize(
    ("name", "phrases"),
    [
        (
            "ln",
            [
                "6 groups of 4 values.",
                "`weight` and the shift `bias` are learned",
                "pools padding no",
                "mean and var are those of the group's values",
                "What an output depends on, and what",
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
        ("prms", ["24 groups of different sizes, smaller", "features 1 and 3"]),
        ("pn", ["shown as at the start"]),
        ("none", ["Pools over nothing", "parameters none"]),
    ],
)
def test_a_norm_is_explained_in_words(capsys, name, phrases):
    out = " ".join(printed(capsys, name).split())
    assert out.startswith(f"{name}: ") and f"normlab train norm={name}" in out
    assert all(text in out for text in phrases)


def printed(capsys, *argv):
    assert main(list(argv)) == 0
    return capsys.readouterr().out


def test_a_norm_can_be_set_as_in_a_training_command(capsys):
    assert printed(capsys, "norm=layernorm") == printed(capsys, "ln")


def test_the_overview_lists_every_norm_in_80_columns(capsys):
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


def test_an_unknown_norm_is_an_error():
    with pytest.raises(ValueError, match=r"'lyernorm' is not an option of the group 'norm'"):
        main(["lyernorm"])


def test_the_name_of_a_placement_is_suggested_as_a_setting():
    with pytest.raises(ValueError, match=r"Did you mean placement=sandwich\?"):
        main(["sandwich"])


def test_the_formula_of_a_norm_has_its_weight_and_bias(capsys):
    for name, ending in (("ln", "+ bias"), ("in", "+ bias"), ("gn", "+ bias"), ("rms", "+ eps)")):
        formula = printed(capsys, name).partition("What it computes\n")[2].split("`")[1]
        assert formula.startswith("weight ") and formula.endswith(ending)


def test_a_norm_that_subtracts_no_mean_is_shown_as_a_division(capsys):
    out = printed(capsys, "rms")
    assert "x / 10.56" in out and "0.00)" not in out
    assert "(x - 2.50) / 1.12" in printed(capsys, "ln")
