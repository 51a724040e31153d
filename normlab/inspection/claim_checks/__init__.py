"""Checks that decide parts of claims in seconds by applying norms to small, fixed inputs.

A claim's `computed:` names a check, such as `padding.pollutes`. Each module holds one family
of checks. Each check is a function registered by `@question(name, of="claim")`.
"""

from normlab.claims.evidence import CheckFinding
from normlab.inspection.questions import questions


def compute(name: str) -> list[CheckFinding]:
    """Run a check and return its evidence; for an unknown name, UserError lists all checks."""
    (check,) = questions("claim", names=[name])
    return check.ask()
