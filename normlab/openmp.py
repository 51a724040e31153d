"""Sets how OpenMP's threads wait for work. This must happen before torch is imported."""

import os
import sys
import warnings

_POLICY = "OMP_WAIT_POLICY"
TOO_LATE = "torch" in sys.modules and _POLICY not in os.environ
"""Whether torch was imported first, so that its threads spin while they wait."""


def wait_passively() -> None:
    """Let threads sleep while they wait, unless the user set a policy or torch has been imported.

    Spinning threads slow down all other threads, to a tenth of their speed on a busy machine
    (results/bench/LOG.md). OpenMP reads the environment variable when torch is imported, and child
    processes inherit it.
    """
    if not TOO_LATE:
        os.environ.setdefault(_POLICY, "passive")


def warn_of_spinning() -> None:
    """Warn once that training will be slow while other processes use the cores."""
    warnings.warn(
        "torch was imported before normlab, so its threads spin while they wait: on a machine "
        "that also does other work, training is several times slower. Import normlab before "
        f"torch, or set {_POLICY}=passive",
        stacklevel=2,
    )
