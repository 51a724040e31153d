"""What a key, flag or option may have meant that does not exist, and what its value should be."""

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from normlab.config import registry
from normlab.config.constraints import constraint_of
from normlab.config.registry import run_groups, sites

_NODES = ("optim", "schedule", "model", "norm", "placement", "task")
_SHOWN = 3
# What people call an option that has another name here, after `group=`.
_SYNONYMS = {
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
_SPECIAL = frozenset("{}[](),'\"$`!\\\n")  # to the grammar or a shell, also within quotes
_LONG_NUMBER = re.compile(r"\d{101}")
_PLUGINS = {
    "hydra/launcher=submitit_slurm": "hydra-submitit-launcher",
    "hydra/launcher=submitit_local": "hydra-submitit-launcher",
    "hydra/launcher=joblib": "hydra-joblib-launcher",
    "hydra/launcher=ray": "hydra-ray-launcher",
    "hydra/sweeper=optuna": "hydra-optuna-sweeper",
}
# Flags of Hydra's own; what else begins with a dash is a key that is written as a flag.
_FLAGS = frozenset(
    {
        *("-h", "--help", "--hydra-help", "--version", "-c", "--cfg", "--resolve", "-p"),
        *("--package", "-r", "--run", "-m", "--multirun", "-sc", "--shell-completion"),
        *("-cp", "--config-path", "-cn", "--config-name", "-cd", "--config-dir", "-i", "--info"),
        "--experimental-rerun",
    }
)


def known_keys() -> list[str]:
    """Return groups, the keys of the top level, and those of the options of a run's parts."""
    own = (f"{node}.{key}" for node in _NODES for key in registry.option_keys(node))
    return [*registry.run_groups(), *registry.sites(), *registry.top_level_keys(), *own]


def meant(key: str, known: Sequence[str] | None = None) -> str:
    """Return ` Did you mean ...?` for a key that does not exist, empty where nothing is near.

    Of a key that other options of its group have, say which they are.
    """
    node, _, own = key.partition(".")
    if own and (having := registry.options_with(node).get(own)):
        return f" {node}={', '.join(having)} {'has' if len(having) == 1 else 'have'} it."
    known = known_keys() if known is None else known
    if "." not in key:  # `name` may mean anything, never the name of a corpus
        known = [name for name in known if not name.endswith(".name")]
    last = key.rpartition(".")[2]
    named = [name for name in known if name.rpartition(".")[2] == last]
    named.sort(key=lambda name: name.count("."))
    by_last = {name.rpartition(".")[2]: name for name in reversed(known)}
    near = get_close_matches(key, known, n=_SHOWN, cutoff=0.7)
    last_near = [by_last[name] for name in get_close_matches(last, by_last, n=_SHOWN, cutoff=0.7)]
    found = [*near, *named] if "." in key else named or near or last_near
    found = list(dict.fromkeys(found or last_near))[:_SHOWN]
    return f" Did you mean {' or '.join(map(_with_options, found))}?" if found else ""


def _with_options(key: str) -> str:
    """Name beside a key the options that have it, where they are few."""
    node, _, own = key.partition(".")
    having = registry.options_with(node).get(own, []) if node in _NODES else []
    few = 0 < len(having) <= _SHOWN
    return f"{key} (of {node}={', '.join(having)})" if few else key


def of_option(group: str, option: str, there: Sequence[str]) -> str:
    """Return ` Did you mean ...?` for an option that a group has not."""
    if (other := _SYNONYMS.get(group, {}).get(option.lower())) in there:
        return f" Did you mean {other}?"
    near = get_close_matches(option.lower(), there, n=_SHOWN, cutoff=0.5)
    return f" Did you mean {' or '.join(near)}?" if near else ""


def no_option(group: str, option: str) -> str:
    """Say that a group has no such option, and what it has; of a plugin of Hydra its package."""
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


def check_flags(arguments: Sequence[str]) -> None:
    """Raise ValueError for a flag that there is not, such as `--steps 100`."""
    for text, value in zip(arguments, _next(arguments), strict=True):
        flag, equals, given = text.partition("=")
        if not text.startswith("-") or flag in _FLAGS or text[1:2].isdigit():
            continue
        key = flag.lstrip("-").replace("-", "_")
        given = given if equals else value
        name = next((name for name in known_keys() if name.rpartition(".")[2] == key), key)
        if name in known_keys():
            raise ValueError(f"there is no {flag}: values are given as {name}={given or 'VALUE'}")
        raise ValueError(
            f"there is no {flag}: values are given as key=value, and --help shows the flags."
            + meant(key)
        )


def expected(key: str) -> str:
    """Say what the value of a key must be, such as `must be at least 1 (steps)`."""
    constraint = constraint_of(key)
    if constraint is None:
        return ""
    unit = f" ({constraint.unit})" if constraint.unit else ""
    kind = "a whole number" if constraint.whole else "a number"
    return f"it takes {kind}{unit} and {constraint.rule}"


def _next(arguments: Sequence[str]) -> Iterator[str]:
    """Yield for each argument the one that follows it, if that is a plain word."""
    for following in [*arguments, ""][1:]:
        yield "" if following.startswith("-") or "=" in following else following


def check_arguments(arguments: Sequence[str]) -> None:
    """Raise ValueError naming an argument that Hydra cannot read, whose own errors name none.

    Flags, and the words that follow them, are Hydra's business.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser

    check_flags(arguments)
    parser = OverridesParser.create()
    for text in arguments:
        key, found, value = text.partition("=")
        if text.startswith("-") or not (found or text.startswith("~")):
            continue
        named = f"{key}={value[:57]}..." if len(value) > 60 else text
        if not key.strip("~+"):
            raise ValueError(f"{named!r} has no key: give key=value")
        if _LONG_NUMBER.search(value):
            raise ValueError(f"{named} has a number of more than 100 digits")
        try:
            parser.parse_override(text)
        except Exception as error:  # the parser's, and Python's own of what it makes
            said = str(error).splitlines()[0]
            if said.startswith("token recognition error") and not _SPECIAL.intersection(value):
                said += f"; quote the value: \"{key}='{value}'\""  # such as a path in Chinese
            raise ValueError(f"{named!r} cannot be read: {said}") from None


_LISTS = ("probe", "sink")


def check_single(arguments: Sequence[str]) -> None:
    """Raise ValueError for a list of options where a group takes one."""
    for group, option in _chosen(arguments):
        if option.startswith("["):
            raise ValueError(
                f"{group}={option}: {group} takes one option; a sweep over several is "
                f"normlab train -m {group}={option.strip('[]').replace(' ', '')}"
            )


def check_given_once(arguments: Sequence[str]) -> None:
    """Raise ValueError for a group or key that is given twice: Hydra would take the last, unsaid.

    Only what a person types is looked at; studies and batteries put a value over another.
    """
    check_single(arguments)
    found: dict[str, str] = {}
    for group, option in _chosen(arguments):
        if found.setdefault(group, option) != option:
            raise ValueError(
                f"{group}={found[group]} and {group}={option} are both given: {group} takes one "
                "option"
            )
    values: dict[str, str] = {}
    for text in arguments:
        key, equals, value = text.partition("=")
        if not equals or text.startswith(("-", "~")) or key.lstrip("+") in _LISTS:
            continue
        if values.setdefault(key.lstrip("+"), value) != value:
            name = key.lstrip("+")
            raise ValueError(
                f"{name}={values[name]} and {name}={value} are both given: give one value of {name}"
            )


def _chosen(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """Return the groups that take one option, each with what is given."""
    groups = {*run_groups(), *sites()} - {*_LISTS}
    pairs = (text.partition("=") for text in arguments if not text.startswith("-"))
    named = ((key.lstrip("+"), found, value.strip("'\"")) for key, found, value in pairs)
    return [(key, value) for key, found, value in named if found and key in groups]
