"""Converts settings from the command line for Hydra, with errors that suggest a fix.

`my.yaml` is the experiment in this file, and `norm=batchnorm` is `norm=bn`.

Text is quoted before Hydra's parser reads it, because the parser would read `name=1.10` as a
number. Everything else is read by that parser (`parsed`), which is imported on first use.
"""

import os
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from normlab.config.error_messages import (
    as_setting,
    empty_path,
    is_group,
    is_looked_up,
    looked_up,
    no_such_key,
    run_groups,
)
from normlab.config.experiments import EXPERIMENT, SEVERAL, chosen_file, is_file, names_in
from normlab.config.registry import norm_name, option_names
from normlab.config.schema import (
    NORM_KEYS,
    PATHS,
    SHORT,
    full_key,
    is_of_tracker,
    key_of,
    lifts_steps,
)
from normlab.errors import UserError

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

# Hydra's own flags. Any other word with a leading dash is a key written like a flag.
_FLAGS = {
    *("-h", "--help", "--hydra-help", "--version", "-c", "--cfg", "--resolve", "-p"),
    *("--package", "-r", "--run", "-m", "--multirun", "-sc", "--shell-completion", "-i", "--info"),
}
_SPECIAL = frozenset("{}[](),'\"$`!\\\n")  # special to Hydra's grammar or a shell, even in quotes


def rewritten(arguments: Sequence[str]) -> list[str]:
    """Return the arguments in Hydra's syntax.

    Experiments come first, as one override; the names of norms and plain text are replaced by what
    Hydra reads. Raises UserError for a file without settings, and for experiments that cannot be
    combined.
    """
    experiments: list[str] = []
    sweeps: list[str] = []
    settings: list[str] = []
    for text in arguments:
        key, equals, value = text.partition("=")
        if not equals and is_file(text):
            experiments.append(chosen_file(text))
        elif not equals or key.lstrip("+") != EXPERIMENT:
            settings.append(_setting(key, value) if equals else text)
        elif parsed(text).is_sweep_override():
            sweeps.append(f"{EXPERIMENT}={value}")
        else:
            experiments += names_in(parsed(text).value())
    if sweeps and len(sweeps) + len(experiments) > 1:
        other = sweeps[1].partition("=")[2] if sweeps[1:] else experiments[0]
        raise UserError(f"{sweeps[0]} and {other} cannot be combined; keep one")
    return [*(sweeps or experiment_override(experiments)), *settings]


def experiment_override(names: Sequence[str]) -> list[str]:
    """Return the override that chooses these experiments, or no override if there are none."""
    written = [name if name.replace("_", "").isalnum() else quoted(name) for name in names]
    value = written[0] if len(written) == 1 else f"[{','.join(written)}]"
    return [f"{EXPERIMENT}={value}"] if names else []


@lru_cache(maxsize=4096)
def parsed(text: str) -> "Override":
    """Return a setting as Hydra's parser reads it. Raise UserError if it cannot be read."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        return OverridesParser.create().parse_override(text)
    except Exception as error:  # from the parser, or from Python when it builds the value
        key, _, value = text.partition("=")
        hint = str(error).splitlines()[0]
        if isinstance(error, HydraException) and not _SPECIAL.intersection(value):
            hint += f"; quote the value: \"{key}='{value}'\""  # such as a path in Chinese
        raise UserError(f"{text!r:.80} cannot be read: {hint}") from None


def typed(arguments: Sequence[str]) -> dict[str, Any]:
    """Return each key's last value from `key=value` arguments, as Hydra's parser reads it.

    The value of a sweep is its text. Flags are skipped.
    """
    values: dict[str, Any] = {}
    for text in arguments:
        if "=" in text and not text.startswith(("-", "~")):
            override, (key, _, value) = parsed(text), text.partition("=")
            values[key] = value if override.is_sweep_override() else override.value()
    return values


def _setting(key: str, value: str) -> str:
    """Return a setting with norm aliases and `probe=full` replaced, and text in quotes."""
    limits = key_of(full_key(key)).range
    if key == "probe" and value == "full":
        value = f"[{','.join(option_names('probe'))}]"
    elif key == "norm" or key.startswith("norm@"):
        value = ",".join(map(norm_name, value.split(",")))
    elif limits is None:
        pass
    elif limits.is_list_of_texts:  # a list, with or without brackets
        value = value if value.startswith(("'[", '"[')) else f"[{_as_text(value.strip('[]'))}]"
    elif limits.is_text and is_of_tracker(key):  # never a sweep
        value = value if value == "null" or value.startswith(("'", '"')) else quoted(value)
    elif limits.is_text:
        value = _as_text(_with_home(value) if key in PATHS else value)
    elif limits.is_number:
        value = value.strip("'\"")
    return f"{key}={value}"


def _with_home(value: str) -> str:
    """Return a path, or the paths of a sweep, with `~` expanded, which Hydra would not do."""
    paths = value.split(",")
    quotes = [path[:1] if path.startswith(("'", '"')) else "" for path in paths]
    return ",".join(
        mark + os.path.expanduser(path.removeprefix(mark))
        for mark, path in zip(quotes, paths, strict=True)
    )


def _as_text(value: str) -> str:
    """Return a value, or the values of a sweep, quoted where Hydra would not read them as text."""
    if any(mark in value for mark in "'\"[({"):
        return value
    return ",".join(each if _reads_as_text(each) else quoted(each) for each in value.split(","))


def _reads_as_text(value: str) -> bool:
    """Return whether Hydra reads a value as text or as null, not as a number or boolean."""
    try:
        return isinstance(parsed(f"key={value}").value(), str | None)
    except UserError:
        return False


def with_full_keys(settings: Sequence[str]) -> list[str]:
    """Return the settings with full keys. `epochs=2` without `steps=` lifts the limit on steps."""
    pairs = [text.partition("=") for text in settings]
    words = [f"{SHORT.get(key, key)}{equals}{value}" for key, equals, value in pairs]
    lifted = lifts_steps([key for key, _, _ in pairs])
    return [*words, f"{SHORT['steps']}=null"] if lifted else words


def quoted(text: str) -> str:
    """Return text in quotes for Hydra."""
    from hydra.core.override_parser.types import Quote, QuotedString

    return QuotedString(text, Quote.single).with_quotes()


# Checks before Hydra composes anything ------------------------------------------------------------


def check_arguments(arguments: Sequence[str]) -> None:
    """Raise UserError for a wrong flag, unreadable text, or a list where one option belongs."""
    padded = ["", *arguments, ""]
    for before, text, after in zip(padded, padded[1:], padded[2:], strict=False):
        key, equals, _ = text.partition("=")
        if text.startswith("-"):
            if key not in _FLAGS and not key[1:2].isdigit():
                raise UserError(f"unknown flag {key}; {as_setting(text, after)}")
        elif not equals and not before.startswith("-") and not text.startswith("~"):
            raise UserError(f"{text!r:.80}: expected key=value, such as norm=bn, or a .yaml file")
        elif equals or text.startswith("~"):  # anything else is the argument of a flag
            _check_override(text, key)


def _check_override(text: str, key: str) -> None:
    if not key.strip("+~"):
        raise UserError(f"{text!r:.80} has no key; write key=value. Is a shell variable unset?")
    if is_looked_up(text.partition("=")[2].strip("'\"")) and not key.startswith("hydra"):
        raise UserError(looked_up(text))
    override = parsed(text)
    if {"/", "@"} & {*key} and key[0] not in "+~" and not is_group(key):
        raise UserError(no_such_key(key))
    if override.is_delete() or override.is_sweep_override():
        return
    options = override.value()
    if key in NORM_KEYS[1:] and not isinstance(options, dict):
        raise UserError(f"{text}: write norm@{text}")
    if key in PATHS and options == "":
        raise UserError(empty_path(key))
    if options in (None, "") and key in run_groups():
        none = "[]" if key in SEVERAL else "none"
        has_none = none == "[]" or none in option_names(key.partition("@")[0])
        advice = f"omit it for the default{f', or set {key}={none} for none' * has_none}"
        raise UserError(f"{text} chooses no option; {advice}")
    if isinstance(options, list) and key not in SEVERAL and key in run_groups():
        sweep = f"normlab train -m {key}={','.join(map(str, options))}"
        raise UserError(f"{text}: {key} accepts one option; sweep over several with {sweep}")


def first_run(arguments: Sequence[str]) -> list[str]:
    """Return the settings of the first run of a sweep, without the keys that a search varies."""
    words: list[str] = []
    for text in arguments:
        if text.startswith(("-", "hydra")):
            continue
        override = parsed(text)
        if not override.is_sweep_override():
            words.append(text)
        elif override.is_discrete_sweep():
            words.append(f"{override.get_key_element()}={next(override.sweep_string_iterator())}")
    return words


def check_given_once(arguments: Sequence[str]) -> None:
    """Raise UserError for a key with two values, because Hydra silently uses the last.

    Only experiments may be given several times.
    """
    values: dict[str, str] = {}
    for name, equals, text in (each.partition("=") for each in arguments):
        key, value = full_key(name.lstrip("+")), text.strip("'\"")
        if not equals or name.startswith("-") or key == EXPERIMENT:
            continue
        if values.setdefault(key, value) != value:
            keep = f"list several as {key}=[A,B]" if key in SEVERAL else "keep one"
            raise UserError(f"{key}={values[key]} and {key}={value} are both set; {keep}")
