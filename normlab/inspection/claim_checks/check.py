"""What a check found: how a number becomes evidence for a claim or against it.

A `Finding` has a verdict on a norm or a model, a `CheckFinding` supports or contradicts a claim.
"""

from collections.abc import Callable, Sequence
from functools import wraps

from jaxtyping import Float
from msgspec import structs
from torch import Tensor

from normlab.claims.evidence import CheckFinding
from normlab.findings.question import question
from normlab.findings.relative_change import percent

Check = Callable[[], list[CheckFinding]]


def check(name: str, *findings: str) -> Callable[[Check], Check]:
    """Register a function as a check; `findings` names what it returns, in its order.

    A claim's `only` selects findings by these names.
    """

    def register(measure: Check) -> Check:
        @wraps(measure)
        def with_names() -> list[CheckFinding]:
            pairs = zip(measure(), findings, strict=True)
            return [structs.replace(each, name=name_) for each, name_ in pairs]

        return question(name, of="claim")(with_names)

    return register


def finding(statement: str, answer: str, *, holds: bool, **numbers: float) -> CheckFinding:
    """Return an answer as evidence: for the claim if the answer `holds`, against it otherwise."""
    return CheckFinding(statement, answer, "supports" if holds else "contradicts", numbers)


def close(values: Sequence[float], expected: Sequence[float]) -> bool:
    """Return whether all values are within 1e-6 of the expected ones."""
    return all(abs(a - b) < 1e-6 for a, b in zip(values, expected, strict=True))


def changes(share: float) -> bool:
    """Return whether a relative change exceeds float64 rounding."""
    return share > 1e-9


def change_finding(
    statement: str, share: float, *, expected: bool = True, because: str = "", **numbers: float
) -> CheckFinding:
    """Return evidence on whether an output changes, given its relative change, `share`."""
    answer = f"changes by {percent(share)}" if changes(share) else "identical"
    return finding(
        statement, answer + because, holds=changes(share) == expected, moved=share, **numbers
    )


def in_words(values: Float[Tensor, " n"], digits: int = 2) -> str:
    """Format values, separated by spaces, with a true minus and without a negative zero."""
    texts = (f"{round(value, digits) + 0:.{digits}f}" for value in values.tolist())
    return " ".join(texts).replace("-", "\u2212")
