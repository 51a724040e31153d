"""Checks of the articles' analogies: the marks of a class, and coaches."""

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.claim_checks.check import (
    ROUNDED_TO_ZERO,
    change_finding,
    check,
    finding,
    values_in_words,
)
from normlab.claim_checks.inputs import draw_normal, new_norm
from normlab.claims.evidence import CheckFinding
from normlab.findings.relative_change import percent, relative_change
from normlab.inspection.examples.articles import PUPILS, SUBJECTS, marks_of_a_class
from normlab.inspection.norm.norm_calls import run

SAME_RESULT = 0.01  # the relative change that eps may cause
HEIGHTS = (152.0, 171.0, 160.0, 190.0)


def standardized(name: str) -> Float[Tensor, "3 3"]:
    """Return the output of a new norm for the marks, one row per pupil."""
    return run(new_norm(name, len(SUBJECTS)), marks_of_a_class())[0]


def are_means_zero(values: Float[Tensor, "3 3"], axis: int) -> bool:
    """Return whether the means over an axis are all zero, up to rounding."""
    return float(values.mean(axis).abs().max()) < ROUNDED_TO_ZERO


def change_by_better_others(name: str) -> float:
    """Return how much the first pupil's result changes if all others get 20 points more."""
    marks = marks_of_a_class()
    marks[0, 1:] += 20.0
    return relative_change(run(new_norm(name, len(SUBJECTS)), marks)[0, 0], standardized(name)[0])


@check("marks.subjects")
def subjects() -> list[CheckFinding]:
    """What does a norm compare: the pupils in one subject, or the subjects of one pupil?"""
    bn, ln = standardized("bn"), standardized("ln")
    first = f"{PUPILS[0]}'s {', '.join(SUBJECTS)} become"
    return [
        finding(
            "bn standardizes",
            "bn standardizes each subject over the class",
            f"{first} {values_in_words(bn[0])}; over the class, subjects have means of "
            f"{values_in_words(bn.mean(0))}",
            holds=are_means_zero(bn, 0) and not are_means_zero(bn, 1),
        ),
        finding(
            "ln standardizes",
            "ln standardizes each pupil's own subjects",
            f"{first} {values_in_words(ln[0])}; over their subjects, pupils have means of "
            f"{values_in_words(ln.mean(1))}",
            holds=are_means_zero(ln, 1) and not are_means_zero(ln, 0),
        ),
        change_finding(
            "bn: better",
            "bn: better marks of others change a pupil's result",
            change_by_better_others("bn"),
        ),
        change_finding(
            "ln: better",
            "ln: better marks of others change no pupil's result",
            change_by_better_others("ln"),
            expected=False,
        ),
    ]


def largest_change_by_scale() -> float:
    """Return how much layer norm's output changes if its input is ten or 0.1 times as large.

    The larger one of both changes is returned.
    """
    x = draw_normal(1, 12, 64)
    ln, *scaled = (run(new_norm("ln"), factor * x)[0] for factor in (1.0, 10.0, 0.1))
    return max(relative_change(each, ln) for each in scaled)


def normalized_heights() -> Float[Tensor, " 4"]:
    """Return batch norm's output for the heights of a class."""
    heights = torch.tensor(HEIGHTS, dtype=torch.float64)
    return run(new_norm("bn", 1), heights[None, :, None])[0, :, 0]


@check("marks.coach")
def coach() -> list[CheckFinding]:
    """Does a norm calm what is too large, rouse what is too small, and line people up?"""
    off, lined_up = largest_change_by_scale(), normalized_heights()
    same_order = lined_up.argsort().tolist() == torch.tensor(HEIGHTS).argsort().tolist()
    return [
        finding(
            "ln",
            "ln gives the same result for a state that is too excited and one that is too low",
            f"ten times as large or as small, the result changes by {percent(off)}",
            holds=off < SAME_RESULT,
            off=off,
        ),
        finding(
            "bn",
            "bn lines up the class by height",
            f"heights of 152, 171, 160 and 190 become {values_in_words(lined_up)}, in "
            f"{'the same' if same_order else 'another'} order",
            holds=same_order,
        ),
    ]
