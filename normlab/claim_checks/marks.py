"""Checks of the articles' analogies: the marks of a class, and coaches."""

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.claim_checks.check import change_finding, check, finding, values_in_words
from normlab.claim_checks.inputs import draw_normal, new_norm
from normlab.claims.evidence import CheckFinding
from normlab.findings.relative_change import relative_change
from normlab.inspection.examples.articles import PUPILS, SUBJECTS, marks_of_a_class
from normlab.inspection.norm.norm_calls import run


def standardized(name: str) -> Float[Tensor, "3 3"]:
    """Return the output of a new norm for the marks."""
    return run(new_norm(name, len(SUBJECTS)), marks_of_a_class())[0]


@check("marks.subjects")
def subjects() -> list[CheckFinding]:
    """What does a norm compare: the pupils in one subject, or the subjects of one pupil?"""
    bn, ln = standardized("bn"), standardized("ln")
    zero = 1e-6
    others = marks_of_a_class()
    others[0, 1:] += 20.0
    changed = {
        name: relative_change(run(new_norm(name, 3), others)[0, 0], standardized(name)[0])
        for name in ("bn", "ln")
    }
    first = f"{PUPILS[0]}'s {', '.join(SUBJECTS)} become"
    return [
        finding(
            "bn standardizes",
            "bn standardizes each subject over the class",
            f"{first} {values_in_words(bn[0])}; over the class, subjects have means of "
            f"{values_in_words(bn.mean(0))}",
            holds=float(bn.mean(0).abs().max()) < zero < float(bn.mean(1).abs().max()),
        ),
        finding(
            "ln standardizes",
            "ln standardizes each pupil's own subjects",
            f"{first} {values_in_words(ln[0])}; over their subjects, pupils have means of "
            f"{values_in_words(ln.mean(1))}",
            holds=float(ln.mean(1).abs().max()) < zero < float(ln.mean(0).abs().max()),
        ),
        change_finding(
            "bn: better", "bn: better marks of others change a pupil's result", changed["bn"]
        ),
        change_finding(
            "ln: better",
            "ln: better marks of others change no pupil's result",
            changed["ln"],
            expected=False,
        ),
    ]


@check("marks.coach")
def coach() -> list[CheckFinding]:
    """Does a norm calm what is too large, rouse what is too small, and line people up?"""
    x = draw_normal(1, 12, 64)
    ln = [run(new_norm("ln"), factor * x)[0] for factor in (1.0, 10.0, 0.1)]
    off = max(relative_change(each, ln[0]) for each in ln[1:])
    heights = torch.tensor([[[152.0], [171.0], [160.0], [190.0]]], dtype=torch.float64)
    lined = run(new_norm("bn", 1), heights)[0, :, 0]
    same = bool((lined.argsort() == heights[0, :, 0].argsort()).all())
    return [
        finding(
            "ln",
            "ln gives the same result for a state that is too excited and one that is too low",
            f"ten times as large or as small, the result changes by {off:.1%}",
            holds=off < 0.01,
            off=off,
        ),
        finding(
            "bn",
            "bn lines up the class by height",
            f"heights of 152, 171, 160 and 190 become {values_in_words(lined)}, in "
            f"{'the same' if same else 'another'} order",
            holds=same,
        ),
    ]
