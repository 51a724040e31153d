"""The decorator of checks, and functions that make findings for or against a claim.

A `CheckFinding` supports or contradicts a claim, unlike a `Finding`, which has a verdict on a norm
or a model.
"""

from collections.abc import Sequence
from functools import partial

from jaxtyping import Float
from torch import Tensor

from normlab.claims.evidence import CheckFinding
from normlab.findings.question import question
from normlab.findings.relative_change import percent

ROUNDED_TO_ZERO = 1e-6  # smaller values of a norm's output count as zero
check = partial(question, of="claim")
"""Register a function as a check, as in `@check("padding.pollutes")`. It must return findings."""


def finding(
    name: str, statement: str, answer: str, *, holds: bool, **numbers: int | float
) -> CheckFinding:
    """Return a finding that supports the claim if the statement `holds`, and otherwise not.

    `numbers` are the numbers behind the answer, with exact counts as `int`. A claim's `only`
    selects findings by `name`, which must be unique within the check.
    """
    return CheckFinding(statement, answer, "supports" if holds else "contradicts", numbers, name)


def close(values: Sequence[float], expected: Sequence[float]) -> bool:
    """Return whether all values equal the expected ones up to rounding."""
    return all(abs(a - b) < ROUNDED_TO_ZERO for a, b in zip(values, expected, strict=True))


def exceeds_rounding(share: float) -> bool:
    """Return whether a relative change is larger than float64 rounding explains."""
    return share > 1e-9


def change_finding(
    name: str,
    statement: str,
    share: float,
    *,
    expected: bool = True,
    because: str = "",
    **numbers: int | float,
) -> CheckFinding:
    """Return a finding on whether an output changes, given its relative change `share`.

    It supports the claim if the output changes and a change is `expected`, or if neither is true.
    `because` is added to the answer.
    """
    answer = f"changes by {percent(share)}" if exceeds_rounding(share) else "identical"
    return finding(
        name,
        statement,
        answer + because,
        holds=exceeds_rounding(share) == expected,
        moved=share,
        **numbers,
    )


def values_in_words(values: Float[Tensor, " n"], digits: int = 2) -> str:
    """Format values, separated by spaces, with true minus signs and 0 instead of -0."""
    texts = (f"{round(value, digits) + 0:.{digits}f}" for value in values.tolist())
    return " ".join(texts).replace("-", "\u2212")
