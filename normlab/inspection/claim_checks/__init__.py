"""Checks that decide parts of claims in seconds by applying norms to small, fixed inputs.

A claim's `check:` names one, such as `padding.pollutes`. Each module has the checks of one subject:
functions with the decorator `check` (`check.py`) that measure, compare with what a sentence of an
article says, and word what they measured. `inputs.py` has the norms and values they share.
"""

from normlab.claims.evidence import CheckFinding
from normlab.inspection.questions import questions


def compute(name: str) -> list[CheckFinding]:
    """Run a check and return its evidence; for an unknown name, UserError lists all checks."""
    (check,) = questions("claim", names=[name])
    return check.ask()
