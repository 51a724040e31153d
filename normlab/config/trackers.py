"""The short keys of W&B and TensorBoard: `wandb=true`, `wandb.KEY=VALUE`, `tensorboard=true`.

Nothing here imports torch.
"""

from collections.abc import Sequence

from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from normlab.config.compose import configs_open, defaults_list
from normlab.config.registry import options_with
from normlab.config.schema import TRACKERS
from normlab.config.suggestions import did_you_mean
from normlab.errors import UserError


def with_trackers(arguments: Sequence[str], experiments: Sequence[str]) -> list[str]:
    """Return the arguments of a run with the sinks of `wandb=true` and `wandb.KEY=VALUE` added.

    The other sinks are taken from the command line or, if it sets none, from the experiments.
    `experiments` is the override that chooses them, or is empty.
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
            _check_setting(name, setting)
            trackers.setdefault(name, True)
            settings.append(text)
        elif value in ("true", "false"):
            trackers[name] = value == "true"
        else:
            raise UserError(f"{text} is not a boolean; set {name}=true or {name}=false")
    typed = [text for text in words if text.startswith("sink=")]
    try:
        sinks, *others = _sinks_of_runs(typed[-1:] or experiments)
    except (HydraException, OmegaConfBaseException, ValueError):
        return [*experiments, *words]  # composing says why they cannot be read
    if any(set(each) != set(sinks) for each in others):
        tracker = next(iter(trackers))
        raise UserError(
            f"{tracker}: the runs of this sweep have different sinks; add {tracker} to sink=, or "
            "to the experiments"
        )
    names = dict.fromkeys([*sinks, *trackers])
    return [
        *experiments,
        *(text for text in words if text not in typed),
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


def _sinks_of_runs(choice: Sequence[str]) -> list[list[str]]:
    """Return the sinks of each run. `choice` is the override of sinks or experiments, if any."""
    with configs_open():
        choices = [[*choice]]
        parser = OverridesParser.create(GlobalHydra.instance().config_loader())  # reads `glob(*)`
        for override in parser.parse_overrides([*choice]):
            if override.is_discrete_sweep():
                key, values = override.get_key_element(), override.sweep_string_iterator()
                choices = [[f"{key}={value}"] for value in values]
        return [_sinks_of_run(words) for words in choices]


def _sinks_of_run(choice: Sequence[str]) -> list[str]:
    paths = [str(each.config_path) for each in defaults_list(choice).defaults]
    return [path.removeprefix("sink/") for path in paths if path.startswith("sink/")]
