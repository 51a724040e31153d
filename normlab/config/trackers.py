"""The short keys of W&B and TensorBoard: `wandb=true`, `wandb.KEY=VALUE`, `tensorboard=true`."""

import re
from collections.abc import Sequence

from normlab.config.registry import options_with
from normlab.config.suggestions import did_you_mean
from normlab.errors import UserError

TRACKERS = ("wandb", "tensorboard")


def with_trackers(arguments: Sequence[str], experiments: Sequence[str]) -> list[str]:
    """Replace `wandb=true` and `wandb.KEY=VALUE` by the sink and its settings.

    The other sinks are those that were typed, or those of the experiments.
    """
    words: list[str] = []
    trackers: dict[str, bool] = {}
    settings: list[str] = []
    for text in arguments:
        key, _, value = text.partition("=")
        name, _, setting = key.partition(".")
        if name not in TRACKERS:
            words.append(text)
        elif setting:
            options = [each for each, sinks in options_with("sink").items() if name in sinks]
            if setting not in options:
                has = f"{name} has {', '.join(options)}" if options else f"give {name}=true"
                near = did_you_mean(setting, options, before=f"{name}.")
                raise UserError(f"{key} does not exist: {has}.{near}")
            trackers.setdefault(name, True)
            settings.append(text)
        elif value in ("true", "false"):
            trackers[name] = value == "true"
        else:
            raise UserError(f"{text}: give {name}=true or {name}=false")
    if not trackers:
        return words
    names = dict.fromkeys([*_other_sinks(words, experiments, next(iter(trackers))), *trackers])
    return [
        *(text for text in words if not text.startswith("sink=")),
        *(f"observe.sink.{text}" for text in settings if trackers[text.partition(".")[0]]),
        f"sink=[{','.join(name for name in names if trackers.get(name, True))}]",
    ]


def _other_sinks(arguments: Sequence[str], experiments: Sequence[str], tracker: str) -> list[str]:
    """Return the sinks that were typed, otherwise those that the experiments choose.

    Raises UserError if they differ between the runs of a sweep.
    """
    from normlab.config.compose import sinks_of

    last = [text for text in arguments if text.startswith("sink=")][-1:]
    sinks = [
        re.findall(r"\w+", choice.removeprefix("sink="))
        if last
        else sinks_of([choice] if choice else [])
        for choice in _swept_choices(last or experiments)
    ]
    if any(set(each) != set(sinks[0]) for each in sinks):
        raise UserError(
            f"{tracker}: the runs of this sweep have different sinks; name {tracker} in sink=, or "
            "in the experiments"
        )
    return sinks[0]


def _swept_choices(choice: Sequence[str]) -> list[str]:
    """Return the choices that an override stands for, one per run of a sweep; "" for none."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    if not choice:
        return [""]
    try:
        override = OverridesParser.create().parse_override(choice[0])
    except Exception:  # the parser's own errors; `check_arguments` says what is wrong
        return [*choice]
    if not override.is_discrete_sweep():
        return [*choice]
    return [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()]
