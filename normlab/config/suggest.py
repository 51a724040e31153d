"""Checks of what the user typed, before Hydra reads it, and suggestions for unknown names."""

from collections.abc import Sequence
from difflib import get_close_matches
from itertools import pairwise

from normlab.config.registry import groups, option_names, options_with
from normlab.config.schema import NORM_KEYS, OPTIONS, top_level_keys

_LISTS = ("probe", "sink")  # groups from which a run takes several options
_MOST = 3  # suggestions
_SYNONYMS = {  # common names of options that have other names here
    "norm": dict(layer="ln", batch="bn", group="gn", instance="in", rms="rms", power="pn"),
    "task": dict(bert="mlm", gpt="lm"),
}
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
    known = [*run_groups(), *top_level_keys()]
    known += [f"{node}.{name}" for node in (*OPTIONS, "norm") for name in options_with(node)]
    words: dict[str, list[str]] = {}
    for name in known:
        words.setdefault(name.rpartition(".")[2], []).append(name)
    near = get_close_matches(key.rpartition(".")[2], words, n=_MOST, cutoff=0.7)
    found = dict.fromkeys(name for word in near for name in words[word])
    return _did_you_mean([*found][:_MOST])


def run_groups() -> list[str]:
    """Return the groups that a run chooses from: all but studies and claims, and `norm@` keys."""
    own = [group for group in groups() if group not in ("claim", "study")]
    return [*own, *(f"norm@{key}" for key in NORM_KEYS[1:])]


def _did_you_mean(names: Sequence[str]) -> str:
    return f" Did you mean {' or '.join(names)}?" if names else ""


def of_option(group: str, option: str, there: Sequence[str]) -> str:
    """Return ` Did you mean ...?` for an option that a group does not have, or ""."""
    word = option.lower().replace("_", "")
    synonym = _SYNONYMS.get(group, {}).get(word.removesuffix("norm") or word)
    if synonym in there:
        return _did_you_mean([str(synonym)])
    return _did_you_mean(get_close_matches(option.lower(), there, n=_MOST, cutoff=0.5))


def no_option(group: str, option: str) -> str:
    """Return the message for an unknown option: what the group has, or which package to install."""
    if group.startswith("hydra/"):
        package = f"hydra-{option.partition('_')[0]}-{group.rpartition('/')[2]}"
        return f"{group}={option} is missing: pip install -c constraints.txt {package}"
    there = option_names(group)
    listed, near = ", ".join(there) or "none", of_option(group, option, there)
    return f"no option {option!r} of the group {group!r}: there are {listed}.{near}"


def check_arguments(arguments: Sequence[str]) -> None:
    """Raise ValueError for a wrong flag, unreadable text, or two options where one fits."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parser = OverridesParser.create()
    for before, text in pairwise(["", *arguments]):
        key, equals, value = text.partition("=")
        if text.startswith("-"):
            if key not in _FLAGS and not key[1:2].isdigit():
                said = meant(key.lstrip("-").replace("-", "_"))
                raise ValueError(f"there is no {key}: values are given as key=value.{said}")
        elif not equals and not before.startswith("-") and not text.startswith("~"):
            raise ValueError(f"{text!r:.80}: expected key=value, such as norm=bn")
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
    """Raise ValueError for a key that is typed with two values, since Hydra takes the last."""
    given: dict[str, str] = {}
    for text in arguments:
        for key, value in typed([text]).items():
            if key not in _LISTS and given.setdefault(key, value) != value:
                raise ValueError(f"{key}={given[key]} and {key}={value} are both given: give one")
