"""The contract of a norm: what the rest of the package takes for granted about every norm.

A check is a function from a `Subject` to a `Verdict`; `CHECKS` lists them by name, in the order in
which they are carried out. `normlab check norm` prints them, and the tests hold all options of
`configs/norm` to them.
"""

from collections.abc import Callable, Iterator, Mapping

from normlab.contract import company, gradients, numbers, statistics
from normlab.contract.subject import Subject, Verdict, violated, where

CHECKS: Mapping[str, Callable[[Subject], Verdict]] = {
    "shape": numbers.shape,
    "zeros": numbers.zeros,
    "precision": numbers.precision,
    "pools": company.pools,
    "padding": company.padding,
    "order": company.order,
    "alone": company.alone,
    "stepwise": company.stepwise,
    "gradient": gradients.gradient,
    "parameters": gradients.parameters,
    "twice": gradients.twice,
    "penalty": gradients.penalty,
    "saved": statistics.saved,
    "running": statistics.running,
}


def examine(subject: Subject) -> Iterator[tuple[str, Verdict]]:
    """Yield the checks' names and verdicts; an error that a norm raises is a violation."""
    for name, check in CHECKS.items():
        try:
            verdict = check(subject)
        except Exception as error:
            text = str(error).strip().partition("\n")[0]
            verdict = violated(f"raises {type(error).__name__}: {text}{where(error, subject)}")
        yield name, verdict
