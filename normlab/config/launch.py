"""Finds out from the environment how this process was started: by `torchrun`, or by a sweep.

Nothing here imports torch.
"""

import os
import signal
import sys
from typing import NamedTuple

from normlab.errors import UserError

PARENT = "NORMLAB_SWEEP"
"""The environment variable with the process id of the sweep or study that started this process."""
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class Launch(NamedTuple):
    """The rank of this process and the number of processes, in total and on this machine."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1

    @property
    def variables(self) -> str:
        """The environment variables set by the launcher, with their values."""
        names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        return " ".join(f"{name}={os.environ[name]}" for name in names if os.environ.get(name))


def launch() -> Launch:
    """Return this process's rank and world size: rank 0 of 1 unless several processes were started.

    Schedulers and shells leave `RANK` or `WORLD_SIZE` behind, so one without the other, or a world
    of one, is ignored. Raises UserError for numbers that cannot be a rank and a size.
    """
    if not (os.environ.get("RANK") and os.environ.get("WORLD_SIZE")):
        return Launch()
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    try:
        process = Launch(*(int(os.environ.get(name) or 0) for name in names))
    except ValueError:
        process = Launch(rank=-1)
    if not 0 <= process.rank < process.size:
        settings = ", ".join(f"{name}={os.environ[name]}" for name in names if name in os.environ)
        raise UserError(
            f"the environment has {settings}, but the rank must be below the number of processes; "
            "unset them to use one process"
        )
    return Launch() if process.size == 1 else process._replace(local_size=process.local_size or 1)


def check_single(what: str) -> None:
    """Raise UserError if this process is one of several. `what` says what needs one process."""
    if (process := launch()).size > 1:
        raise UserError(
            f"the environment has {process.variables}, as under torchrun, but {what}; start it "
            "without torchrun, or unset RANK and WORLD_SIZE"
        )


def end_with_the_sweep() -> None:
    """Make a run of a sweep exit when the sweep is killed. This works only on Linux.

    Otherwise the run would keep running and hold the lock on its folder, so the sweep could not be
    restarted.
    """
    parent = os.environ.pop(PARENT, None)
    if parent is None or sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):  # the sweep was killed before this call
        os.kill(os.getpid(), signal.SIGKILL)
