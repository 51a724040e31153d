"""How long a run takes, from what a probe of it measured: arithmetic, and figures as text."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Estimate:
    """How often a run does what, and its seconds in all.

    `updates` is the most there are: a run with patience, or one that diverges, ends before.
    """

    updates: int
    validations: int
    saves: int
    seconds: float


def planned_updates(config: Mapping[str, Any], cost: Mapping[str, Any] | None = None) -> int | None:
    """Return the updates after which the budget of a config is spent, None where that is not known.

    Limits in epochs, tokens and minutes are known from what was measured alone.
    """
    budget = config["budget"]
    limits = [budget["steps"]]
    others = [budget["epochs"], budget["tokens"], budget["minutes"]]
    if cost is None:
        if any(limit is not None for limit in others):
            return None
    else:
        per = [
            cost["updates_per_epoch"],
            1 / cost["tokens_per_update"],
            60 / cost["update_seconds"],
        ]
        limits += [
            math.ceil(limit * each) if limit is not None else None
            for limit, each in zip(others, per, strict=True)
        ]
    return min((int(limit) for limit in limits if limit is not None), default=None)


def estimate(config: Mapping[str, Any], cost: Mapping[str, Any]) -> Estimate:
    """Return what a run of a config does, and how long it takes, where its parts take `cost`."""
    updates = planned_updates(config, cost)
    assert updates is not None, "a budget has a limit"
    every, checkpoints = config["validate"]["every"], config["observe"]["checkpoint_every"]
    validations = math.ceil(updates / every)
    saves = updates // checkpoints + 2 * validations  # a validation saves the best and the last
    change = (config["task"].get("length_change") or {}).get("step") or updates + 1
    later = max(0, updates - change + 1)
    training = cost["update_seconds"] * (updates + later * (cost["later_share"] - 1))
    seconds = (
        (cost["start_seconds"] or 0)
        + training
        + validations * cost["validation_seconds"]
        + saves * cost["save_seconds"]
        + cost["test_seconds"]
    )
    return Estimate(updates, validations, saves, seconds)


def duration(seconds: float | int) -> str:
    """Return seconds, minutes, hours or days, as people say them."""
    for unit, size, below in (("s", 1, 100), ("min", 60, 100 * 60), ("h", 3600, 100 * 3600)):
        if seconds < below:
            return f"{seconds / size:.{1 if seconds < 10 * size and unit != 's' else 0}f} {unit}"
    return f"{seconds / 86400:.1f} days"


def memory(size: float | int) -> str:
    """Return bytes in GiB, or MiB below one of them."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"


def updates(count: int | None) -> str:
    """Return a number of updates; a question mark where it is not known."""
    return "?" if count is None else f"{count:,}"
