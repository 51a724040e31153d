"""The decorator of checks, and functions that turn a number into evidence for or against a claim.

A `Finding` has a verdict on a norm or a model; a `CheckFinding` supports or contradicts a claim.
"""

from collections.abc import Sequence
from functools import partial

from jaxtyping import Float
from torch import Tensor

from normlab.claims.evidence import CheckFinding
from normlab.findings.question import question
from normlab.findings.relative_change import percent

check = partial(question, of="claim")
"""Register a function that returns findings as a check: `@check("padding.pollutes")`."""


def finding(
    name: str, statement: str, answer: str, *, holds: bool, **numbers: float
) -> CheckFinding:
    """Return an answer as evidence for a claim if the statement `holds`, otherwise against it.

    A claim can select findings by `name` with `only`; a name is unique within its check.
    """
    return CheckFinding(statement, answer, "supports" if holds else "contradicts", numbers, name)


def close(values: Sequence[float], expected: Sequence[float]) -> bool:
    """Return whether all values are within 1e-6 of the expected ones."""
    return all(abs(a - b) < 1e-6 for a, b in zip(values, expected, strict=True))


def exceeds_rounding(share: float) -> bool:
    """Return whether a relative change exceeds float64 rounding."""
    return share > 1e-9


def change_finding(
    name: str,
    statement: str,
    share: float,
    *,
    expected: bool = True,
    because: str = "",
    **numbers: float,
) -> CheckFinding:
    """Return evidence on whether an output changes, from its relative change `share`.

    The evidence supports the claim if the output changes as `expected`.
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
    """Format values, separated by spaces, with a minus sign (not a hyphen) and without -0."""
    texts = (f"{round(value, digits) + 0:.{digits}f}" for value in values.tolist())
    return " ".join(texts).replace("-", "\u2212")
