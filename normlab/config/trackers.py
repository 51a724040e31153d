"""The short keys of W&B and TensorBoard: `wandb=true`, `wandb.KEY=VALUE`, `tensorboard=true`.

`wandb=true` adds a sink. `wandb.project=mine` also adds it, and sets `observe.sink.wandb.project`.
Nothing here imports torch or Hydra.
"""

from collections.abc import Sequence

from normlab.config.registry import options_with
from normlab.config.schema import is_of_tracker
from normlab.config.suggestions import did_you_mean
from normlab.errors import UserError


def with_trackers(arguments: Sequence[str], sinks: Sequence[Sequence[str]]) -> list[str]:
    """Return the arguments with the short keys of trackers replaced by the sinks of the run.

    `sinks` are the sinks that the other arguments choose, for each run of a sweep. Raises UserError
    for an unknown key or a value that is not a boolean, and if the sinks of the runs differ.
    """
    trackers: dict[str, bool] = {}
    settings: list[str] = []
    others: list[str] = []
    for text in arguments:
        key, _, value = text.partition("=")
        name, _, setting = key.partition(".")
        if not is_of_tracker(key):
            others.append(text)
        elif setting:
            _check_setting(name, setting)
            trackers.setdefault(name, True)
            settings.append(text)
        elif value in ("true", "false"):
            trackers[name] = value == "true"
        else:
            raise UserError(f"{text} is not a boolean; set {name}=true or {name}=false")
    if any(set(each) != set(sinks[0]) for each in sinks):
        tracker = next(iter(trackers))
        raise UserError(
            f"{tracker}: the runs of this sweep have different sinks; add {tracker} to sink=, or "
            "to the experiments"
        )
    names = dict.fromkeys([*sinks[0], *trackers])
    return [
        *(text for text in others if not text.startswith("sink=")),
        *(f"observe.sink.{text}" for text in settings if trackers[text.partition(".")[0]]),
        f"sink=[{','.join(name for name in names if trackers.get(name, True))}]",
    ]


def _check_setting(tracker: str, setting: str) -> None:
    """Raise UserError for a setting that a tracker does not have, and suggest a similar one."""
    known = [key for key, sinks in options_with("sink").items() if tracker in sinks]
    if setting not in known:
        has = f"{tracker} has {', '.join(known)}" if known else f"set {tracker}=true"
        near = did_you_mean(setting, known, before=f"{tracker}.")
        raise UserError(f"{tracker}.{setting} does not exist: {has}.{near}")
