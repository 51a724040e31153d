"""Checks of what was typed, before Hydra reads it, and suggestions for what does not exist."""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from normlab.config import registry
from normlab.config.constraints import constraint_of

_NODES = ("optim", "schedule", "model", "norm", "placement", "task")
_LISTS = ("probe", "sink")  # groups of which a run has several options
_MOST = 3  # suggestions
_SYNONYMS = {  # common names of options that are named otherwise here
    "norm": {
        **dict.fromkeys(("layer", "layernorm", "layer_norm"), "ln"),
        **dict.fromkeys(("batch", "batchnorm", "batch_norm"), "bn"),
        **dict.fromkeys(("group", "groupnorm", "group_norm"), "gn"),
        **dict.fromkeys(("instance", "instancenorm", "instance_norm"), "in"),
        **dict.fromkeys(("rmsnorm", "rms_norm"), "rms"),
        **dict.fromkeys(("powernorm", "power_norm"), "pn"),
    },
    "task": {"bert": "mlm", "gpt": "lm"},
}
_PLUGINS = {
    "hydra/launcher=submitit_slurm": "hydra-submitit-launcher",
    "hydra/launcher=submitit_local": "hydra-submitit-launcher",
    "hydra/launcher=joblib": "hydra-joblib-launcher",
    "hydra/launcher=ray": "hydra-ray-launcher",
    "hydra/sweeper=optuna": "hydra-optuna-sweeper",
}
# Hydra's own flags. Any other word that begins with a dash is a key written as a flag.
_FLAGS = {
    *("-h", "--help", "--hydra-help", "--version", "-c", "--cfg", "--resolve", "-p"),
    *("--package", "-r", "--run", "-m", "--multirun", "-sc", "--shell-completion"),
    *("-cp", "--config-path", "-cn", "--config-name", "-cd", "--config-dir", "-i", "--info"),
    "--experimental-rerun",
}
_SPECIAL = frozenset("{}[](),'\"$`!\\\n")  # to Hydra's grammar or a shell, even in quotes
_LONG_NUMBER = re.compile(r"\d{101}")


def typed(arguments: Sequence[str]) -> dict[str, str]:
    """Return the last value of each key of `key=value` arguments, without quotes or flags."""
    pairs = [text.partition("=") for text in arguments if not text.startswith("-")]
    return {key: value.strip("'\"") for key, equals, value in pairs if equals}


def meant(key: str) -> str:
    """Return ` Did you mean ...?` for a key that does not exist, or "" if no key is similar.

    If other options of the group have the key, they are named instead.
    """
    node, _, own = key.partition(".")
    if own and (having := registry.options_with(node).get(own)):
        return f" {node}={', '.join(having)} {'has' if len(having) == 1 else 'have'} it."
    known = _known_keys()
    if "." not in key:  # `name` may mean anything, but never the name of a corpus
        known = [name for name in known if not name.endswith(".name")]
    last = key.rpartition(".")[2]
    same_last = [name for name in known if name.rpartition(".")[2] == last]
    same_last.sort(key=lambda name: name.count("."))
    by_last = {name.rpartition(".")[2]: name for name in reversed(known)}
    near = get_close_matches(key, known, n=_MOST, cutoff=0.7)
    near_last = [by_last[name] for name in get_close_matches(last, by_last, n=_MOST, cutoff=0.7)]
    found = [*near, *same_last] if "." in key else same_last or near
    return _did_you_mean(map(_with_options, list(dict.fromkeys(found or near_last))[:_MOST]))


def _known_keys() -> list[str]:
    of_options = (f"{node}.{key}" for node in _NODES for key in registry.options_with(node))
    top = registry.top_level_keys()
    return [*registry.run_groups(), *registry.sites(), *top, *of_options]


def _with_options(key: str) -> str:
    """Add to a key the options that have it, if they are few."""
    node, _, own = key.partition(".")
    having = registry.options_with(node).get(own, []) if node in _NODES else []
    return f"{key} (of {node}={', '.join(having)})" if 0 < len(having) <= _MOST else key


def _did_you_mean(names: Iterable[str]) -> str:
    said = " or ".join(names)
    return f" Did you mean {said}?" if said else ""


def of_option(group: str, option: str, there: Sequence[str]) -> str:
    """Return ` Did you mean ...?` for an option that a group does not have."""
    synonym = _SYNONYMS.get(group, {}).get(option.lower())
    if synonym is not None and synonym in there:
        return _did_you_mean([synonym])
    return _did_you_mean(get_close_matches(option.lower(), there, n=_MOST, cutoff=0.5))


def no_option(group: str, option: str) -> str:
    """Say that a group has no such option, and which it has or which package has it."""
    if (package := _PLUGINS.get(f"{group}={option}")) is not None:
        return (
            f"{group}={option} needs the package {package}, which is not installed: "
            f"pip install -c constraints.txt {package}"
        )
    if not group:
        return (
            f"no config {option!r}: normlab has one, configs/config.yaml; leave --config-name out"
        )
    there = registry.option_names(group)
    listed, near = ", ".join(there) or "none", of_option(group, option, there)
    return f"no option {option!r} of the group {group!r}: there are {listed}.{near}"


def expected(key: str) -> str:
    """Say what the value of a key must be, such as `it takes a number and must be above 0`."""
    constraint = constraint_of(key)
    if constraint is None:
        return ""
    unit = f" ({constraint.unit})" if constraint.unit else ""
    kind = "a whole number" if constraint.whole else "a number"
    return f"it takes {kind}{unit} and {constraint.rule}"


def check_arguments(arguments: Sequence[str]) -> None:
    """Raise ValueError naming a wrong flag or an argument that Hydra's parser cannot read."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parser = OverridesParser.create()
    for text, following in zip(arguments, [*arguments, ""][1:], strict=True):
        key, equals, value = text.partition("=")
        if text.startswith("-"):
            word = "" if following.startswith("-") or "=" in following else following
            _check_flag(key, value if equals else word)
            continue
        if not (equals or text.startswith("~")):  # a word after a flag
            continue
        named = f"{key}={value[:57]}..." if len(value) > 60 else text
        if not key.strip("~+"):
            raise ValueError(f"{named!r} has no key: give key=value")
        if _LONG_NUMBER.search(value):
            raise ValueError(f"{named} has a number of more than 100 digits")
        try:
            parser.parse_override(text)
        except Exception as error:  # the parser's own, and Python's for what it builds
            said = str(error).splitlines()[0]
            if said.startswith("token recognition error") and not _SPECIAL.intersection(value):
                said += f"; quote the value: \"{key}='{value}'\""  # such as a path in Chinese
            raise ValueError(f"{named!r} cannot be read: {said}") from None


def _check_flag(flag: str, value: str) -> None:
    """Raise ValueError for a flag that does not exist, such as `--steps 100`."""
    if flag in _FLAGS or flag[1:2].isdigit():
        return
    key = flag.lstrip("-").replace("-", "_")
    for name in _known_keys():
        if name.rpartition(".")[2] == key:
            raise ValueError(f"there is no {flag}: values are given as {name}={value or 'VALUE'}")
    raise ValueError(
        f"there is no {flag}: values are given as key=value, and --help shows the flags."
        + meant(key)
    )


def check_single(arguments: Sequence[str]) -> None:
    """Raise ValueError for a list of options where a group takes one."""
    for key, value in typed(arguments).items():
        group = key.lstrip("+")
        if value.startswith("[") and group in _groups_of_one():
            raise ValueError(
                f"{group}={value}: {group} takes one option; a sweep over several is "
                f"normlab train -m {group}={value.strip('[]').replace(' ', '')}"
            )


def check_given_once(arguments: Sequence[str]) -> None:
    """Raise ValueError for a key or group with two values: Hydra would take the last silently.

    Only for what a person types: studies put one value over another.
    """
    check_single(arguments)
    given: dict[str, str] = {}
    for text in arguments:
        for key, value in typed([text]).items():
            name = key.lstrip("+")
            first = value if name in _LISTS else given.setdefault(name, value)
            if first != value:
                one = f"{name} takes one option" if name in _groups_of_one() else ""
                raise ValueError(
                    f"{name}={first} and {name}={value} are both given: "
                    f"{one or f'give one value of {name}'}"
                )


def _groups_of_one() -> set[str]:
    return {*registry.run_groups(), *registry.sites()}.difference(_LISTS)
