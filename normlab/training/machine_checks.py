"""Checks of this machine: its device, the precision that `auto` selects, and the W&B login."""

from collections.abc import Iterator
from typing import NamedTuple

import torch

from normlab.records.record import arithmetic_of
from normlab.training.runtime import Runtime
from normlab.training.wandb import find_login, reach, resolve_mode

_SECONDS = 3.0  # the longest wait for W&B to answer


class Diagnosis(NamedTuple):
    """A finding that is ok or a warning. `advice` says what to do, or is empty."""

    name: str
    status: str
    result: str
    advice: str = ""


def run_checks() -> Iterator[Diagnosis]:
    """Check the device, the precision that `precision=auto` selects, and the W&B login."""
    environment = Runtime.start(device="auto", precision="auto", threads=None).environment()
    device = str(environment["device"])
    if torch.version.cuda is not None and not torch.cuda.is_available():
        result = f"{device}; torch is built for CUDA {torch.version.cuda} but finds no GPU"
        yield Diagnosis("device", "warn", result, "run nvidia-smi to see why, or use the CPU")
    else:
        yield Diagnosis("device", "ok", f"{device}; a run uses {torch.get_num_threads()} threads")
    _, precision, instructions = arithmetic_of(environment)
    yield Diagnosis("precision", "ok", f"precision=auto is {precision} ({instructions})")
    yield _wandb()


def _wandb() -> Diagnosis:
    login = find_login()
    mode = resolve_mode("auto", login)
    if not login.source:
        return Diagnosis(
            "wandb",
            "ok",
            f"mode=auto is {mode}, because there is no login",
            "run wandb login to send runs",
        )
    if mode != "online":
        return Diagnosis("wandb", "ok", f"mode=auto is {mode}")
    try:
        reach(login.host, _SECONDS)
    except OSError as error:
        result = f"the login is in {login.source}, but {login.host} does not answer: {error}"
        return Diagnosis(
            "wandb", "warn", result, "runs are kept offline; wandb sync uploads them later"
        )
    return Diagnosis("wandb", "ok", f"online at {login.host}; the login is in {login.source}")
