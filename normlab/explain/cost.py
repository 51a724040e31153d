"""Decides what a norm costs a token, from its axes and its formula; nothing here is measured.

The unit is D, the number of features: what an operation on every value of a token comes to.
"""

from collections.abc import Set
from dataclasses import dataclass

from normlab.explain.dependence import Sees
from normlab.explain.worked import Kind

_PASSES = {"identity": 0, "standardize": 2, "scale": 1}


@dataclass(frozen=True)
class Work:
    """Per token, in units of D: values read, values written, adds or multiply-adds.

    `operations` is None where the formula is not one that can be read off the outputs.
    """

    reads: int
    writes: int
    operations: int | None


@dataclass(frozen=True)
class Cost:
    """The work in training and in eval, and how it comes about."""

    train: Work
    eval: Work
    why: list[str]


def cost(pools: Set[str], kind: Kind, train: Sees, evaluated: Sees, *, rows: int | None) -> Cost:
    """Return what a norm costs; `rows` are the positions it keeps statistics for, if it does."""
    if kind == "identity":
        return Cost(Work(0, 0, 0), Work(0, 0, 0), ["Nothing is computed."])
    if not pools:
        work = Work(1, 1, None)
        return Cost(work, work, ["Every value is read, mapped and written once: no statistics."])
    by_tokens = not pools.isdisjoint({"batch", "position"})
    passes = _PASSES.get(kind, 2)
    operations = None if kind == "other" else passes + 1
    work = Work(passes + 1 if by_tokens else 1, 1, operations)
    why = [_statistics(kind)]
    if by_tokens:
        why.append(
            "The statistics need every token of the pool before the first output, so x is read "
            f"{'once' if passes == 1 else 'twice'} for them and once more for the output."
        )
    else:
        why.append("A token's D values stay at hand from the statistics to the output: one read.")
    waits = evaluated.earlier or evaluated.later or evaluated.others
    if not by_tokens or waits:
        return Cost(work, work, why)
    if not evaluated.itself_alone:
        why.append("In eval what it kept stands in for the pool: x is read once.")
        return Cost(work, Work(1, 1, None), why)
    why.append(
        "In eval the running statistics are constants: mean, variance, weight and bias melt into "
        "one factor and one offset a feature, so one multiply-add a value is left."
    )
    if rows == 1:
        why.append("A linear layer next to it can take these in, and then nothing is left.")
    else:
        why.append("They differ by position, so no linear layer can take them in.")
    return Cost(work, Work(1, 1, 1), why)


def _statistics(kind: Kind) -> str:
    if kind == "standardize":
        return (
            "A value: one add for the mean, one multiply-add for the variance, one to apply them."
        )
    if kind == "scale":
        return "A value: one multiply-add for the mean square, one multiply to apply it; no mean."
    return "Its arithmetic is its own; counted are passes for a mean, a variance and the output."
