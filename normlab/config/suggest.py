"""Checks of what the user typed, before Hydra reads it, and suggestions for unknown names."""

from collections.abc import Sequence
from difflib import get_close_matches
from itertools import pairwise

from normlab.config.folders import groups, of_your_own
from normlab.config.registry import option_names, options_with
from normlab.config.schema import NORM_KEYS, OPTIONS, top_level_keys

SHORT = {
    **{"lr": "optim.lr", "steps": "budget.steps", "epochs": "budget.epochs"},
    **{"name": "observe.name", "tags": "observe.tags", "debug": "observe.debug"},
}
"""Short keys, with what each stands for (see `normlab.config.shorthand`)."""
EXPERIMENT = "experiment"
TRACKERS = ("wandb", "tensorboard")
NORMS = dict(layer="ln", batch="bn", group="gn", instance="in", rms="rms", power="pn")
"""Common names of norms, without the word `norm`."""

_LISTS = ("probe", "sink")  # groups from which a run takes several options
_MOST = 3  # suggestions
_SYNONYMS = {"norm": NORMS, "task": dict(bert="mlm", gpt="lm")}
# Hydra's own flags. Any other word with a leading dash is a key that was typed like a flag.
_FLAGS = {
    *("-h", "--help", "--hydra-help", "--version", "-c", "--cfg", "--resolve", "-p"),
    *("--package", "-r", "--run", "-m", "--multirun", "-sc", "--shell-completion", "-i", "--info"),
}
_SPECIAL = frozenset("{}[](),'\"$`!\\\n")  # special to Hydra's grammar or a shell, even in quotes


def typed(arguments: Sequence[str]) -> dict[str, str]:
    """Return the last value of each key of `key=value` arguments, without quotes or flags."""
    pairs = [text.partition("=") for text in arguments if not text.startswith("-")]
    return {key: value.strip("'\"") for key, equals, value in pairs if equals}


def meant(key: str) -> str:
    """Return ` Did you mean ...?` for an unknown key, or "" if no key is similar.

    If other options of the group have the key, the text names those options instead.
    """
    node, _, own = key.partition(".")
    if own and (having := options_with(node).get(own)):
        return f" {node}={', '.join(having)} {'has' if len(having) == 1 else 'have'} it."
    known = [*SHORT, *TRACKERS, *run_groups(), *top_level_keys()]
    known += [f"{node}.{name}" for node in (*OPTIONS, "norm") for name in options_with(node)]
    words: dict[str, list[str]] = {}
    for name in known:
        words.setdefault(name.rpartition(".")[2], []).append(name)
    near = get_close_matches(key.rpartition(".")[2], words, n=_MOST, cutoff=0.7)
    found = dict.fromkeys(name for word in near for name in words[word])
    if own:
        return _said([name for name in found if name not in SHORT][:_MOST])
    long = {SHORT[name] for name in found if name in SHORT}
    return _said([name for name in found if name not in long][:_MOST])


def run_groups() -> list[str]:
    """Return the groups that a run chooses from: all but studies and claims, and `norm@` keys."""
    own = [group for group in groups() if group not in ("claim", "study")]
    return [*own, *(f"norm@{key}" for key in NORM_KEYS[1:])]


def _said(names: Sequence[str]) -> str:
    return f" Did you mean {' or '.join(names)}?" if names else ""


def did_you_mean(word: str, there: Sequence[str], *, before: str = "") -> str:
    """Return ` Did you mean ...?` with the most similar words, or "" if none is similar.

    `before` is put before each of them.
    """
    near = get_close_matches(word.lower(), there, n=_MOST, cutoff=0.5)
    return _said([f"{before}{each}" for each in near])


def is_file(text: str) -> bool:
    """Return whether an argument names a file of settings."""
    return "=" not in text and text.endswith((".yaml", ".yml"))


def of_option(group: str, option: str, there: Sequence[str]) -> str:
    """Return ` Did you mean ...?` for an option that a group does not have, or ""."""
    word = option.lower().replace("_", "")
    synonym = _SYNONYMS.get(group, {}).get(word.removesuffix("norm") or word)
    if synonym in there:
        return _said([str(synonym)])
    return did_you_mean(option, there)


def no_option(group: str, option: str) -> str:
    """Return the message for an unknown option: the group's options, or the package to install."""
    if group.startswith("hydra/"):
        package = f"hydra-{option.partition('_')[0]}-{group.rpartition('/')[2]}"
        return f"{group}={option} is missing: pip install -c constraints.txt {package}"
    there = option_names(group)
    names, near = ", ".join(there) or "none", of_option(group, option, there)
    return f"no option {option!r} of the group {group!r}; choose from {names}.{near}{of_your_own()}"


def check_arguments(arguments: Sequence[str]) -> None:
    """Raise ValueError for a wrong flag, unreadable text, or two options where one fits."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parser = OverridesParser.create()
    for before, text in pairwise(["", *arguments]):
        key, equals, value = text.partition("=")
        if text.startswith("-"):
            if key not in _FLAGS and not key[1:2].isdigit():
                said = meant(key.lstrip("-").replace("-", "_"))
                raise ValueError(f"unknown flag {key}; give values as key=value.{said}")
        elif not equals and not before.startswith("-") and not text.startswith("~"):
            raise ValueError(f"{text!r:.80}: expected key=value, such as norm=bn, or a .yaml file")
        elif equals or text.startswith("~"):  # anything else is the argument of a flag
            try:
                parser.parse_override(text)
            except Exception as error:  # from the parser, or from Python when it builds the value
                said = str(error).splitlines()[0]
                if said.startswith("token recognition error") and not _SPECIAL.intersection(value):
                    said += f"; quote the value: \"{key}='{value}'\""  # such as a path in Chinese
                raise ValueError(f"{text!r:.80} cannot be read: {said}") from None
            if value.startswith("[") and key not in _LISTS and key in run_groups():
                sweep = f"normlab train -m {key}={value.strip('[]').replace(' ', '')}"
                raise ValueError(f"{text}: {key} takes one option; a sweep over several is {sweep}")


def check_given_once(arguments: Sequence[str]) -> None:
    """Raise ValueError for a key typed with two values, since Hydra silently takes the last."""
    given: dict[str, str] = {}
    for text in arguments:
        for name, value in typed([text]).items():
            key = SHORT.get(name, name)
            if key not in _LISTS and given.setdefault(key, value) != value:
                raise ValueError(f"{key}={given[key]} and {key}={value} are both given; keep one")
