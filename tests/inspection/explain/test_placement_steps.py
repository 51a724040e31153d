"""Placements, and the order of their steps."""

import pytest

from normlab.commands.explain import main
from normlab.config.registry import options
from normlab.inspection.explain.placement_steps import wiring


def printed(capsys, *argv):
    assert main(list(argv)) == 0
    return capsys.readouterr().out


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
def test_a_placement_is_drawn_and_its_steps_are_listed_in_order(name, steps):
    explanation = wiring(next(option for option in options("placement") if option.name == name))
    assert explanation.properties["an encoder layer"].startswith(steps)
    assert any("sub-layer" in line for line in explanation.sections[0].drawing)
    assert explanation.properties["after the last layer"] == (
        "no norm" if name == "post" else "a norm"
    )


def test_every_placement_has_an_equation_and_a_drawing_of_all_its_kinds_of_sub_layers():
    drawings = {option.name: wiring(option).sections[0].drawing for option in options("placement")}
    assert len(drawings) > 15 and all(any("-->" in line for line in x) for x in drawings.values())
    assert all(line == "" or line.startswith(" " * 8) for x in drawings.values() for line in x)
    assert all("=" in drawing[0] for drawing in drawings.values()), "the equation comes first"
    hybrid = "\n".join(drawings["hybrid"])
    assert hybrid.index("--> attention") < hybrid.index("--> feed-forward")


def test_two_placements_are_drawn_and_compared(capsys):
    out = printed(capsys, "placement=pre", "post")
    assert out.index("x ---+--> norm --> sub-layer") < out.index("x ---+--> sub-layer --> dropout")
    assert "Steps" in out and "normlab train placement=post" in out
    with pytest.raises(ValueError, match=r"'prae' is not an option of .*placement"):
        main(["placement=prae"])
