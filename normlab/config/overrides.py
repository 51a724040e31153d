"""Settings as typed on a command line: their form for Hydra, and fixes for errors.

`my.yaml` is an experiment in this file, and `norm=batchnorm` is `norm=bn`. `wandb=true` adds a
sink, and `wandb.project=mine` sets `observe.sink.wandb.project` and adds it too.
`include=FOLDER` adds a folder of the user's own options to the environment variable `NORMLAB_PATH`.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

from normlab.config.error_messages import is_group, meant, no_such_key, run_groups
from normlab.config.experiments import EXPERIMENT, chosen_file, is_file, names_in
from normlab.config.folders import included
from normlab.config.ranges import takes_number
from normlab.config.registry import norm_name, option_names
from normlab.config.schema import SHORT, TRACKERS, lifts_steps, text_keys
from normlab.errors import UserError

_SEVERAL = ("probe", "sink", EXPERIMENT)  # groups from which a run takes several options
_LISTS = ("tags", "wandb.tags")  # keys whose value is a list, with or without brackets
_TEXTS = (
    "wandb.project",
    "wandb.entity",
    "wandb.name",
    "wandb.group",
    "wandb.job_type",
    "wandb.notes",
)
# What Hydra reads as a number or a truth value, or cannot read.
_NO_TEXT = re.compile(r"[-+]?[0-9._]+(e[-+]?[0-9_]+)?|true|false|nan|inf|~/.*", re.IGNORECASE)
# Hydra's own flags. Any other word with a leading dash is a key that was typed like a flag.
_FLAGS = {
    *("-h", "--help", "--hydra-help", "--version", "-c", "--cfg", "--resolve", "-p"),
    *("--package", "-r", "--run", "-m", "--multirun", "-sc", "--shell-completion", "-i", "--info"),
}
_SPECIAL = frozenset("{}[](),'\"$`!\\\n")  # special to Hydra's grammar or a shell, even in quotes
_BEFORE_QUOTE = re.compile(r"(\\*)('|$)")


def written_out(arguments: Sequence[str]) -> list[str]:
    """Return the arguments as Hydra is to read them, with own folders added to `NORMLAB_PATH`.

    Raises UserError for a file without settings, an unknown key of W&B or TensorBoard, or what
    `check_arguments` refuses.
    """
    experiments: list[str] = []
    settings: list[str] = []
    for text in included(arguments):
        key, equals, value = text.partition("=")
        if not equals and is_file(text):
            experiments.append(chosen_file(text))
        elif equals and key.lstrip("+") == EXPERIMENT:
            experiments += [value] if is_sweep(value) else names_in(value)
        else:
            settings.append(_setting(key, value) if equals else text)
    if len(experiments) > 1 and any(map(is_sweep, experiments)):
        raise UserError(f"{EXPERIMENT}={experiments[0]} and {experiments[1]}: name only one")
    chosen = _experiment_override(experiments)
    words = [*chosen, *settings]
    if any(re.split("[.=]", text, maxsplit=1)[0] in TRACKERS for text in settings):
        from normlab.config.trackers import with_trackers  # imports Hydra

        words = with_trackers(settings, chosen)
    check_arguments(words)
    return words


def is_sweep(value: str) -> bool:
    """Return whether a value stands for several, as in `a,b` or `glob(*)`."""
    return not value.startswith("[") and any(mark in value for mark in ",(")


def _experiment_override(experiments: Sequence[str]) -> list[str]:
    """Return the override that chooses experiments; the last one decides."""
    if len(experiments) == 1 and is_sweep(experiments[0]):
        return [f"{EXPERIMENT}={experiments[0]}"]
    names = [name if name.replace("_", "").isalnum() else quoted(name) for name in experiments]
    match names:
        case []:
            return []
        case [name]:
            return [f"{EXPERIMENT}={name}"]
        case _:
            return [f"{EXPERIMENT}=[{','.join(names)}]"]


def typed(arguments: Sequence[str]) -> dict[str, str]:
    """Return each key's last value from `key=value` arguments, unquoted; flags are skipped."""
    return dict(_typed_pairs(arguments))


def _typed_pairs(arguments: Sequence[str]) -> list[tuple[str, str]]:
    pairs = [text.partition("=") for text in arguments if not text.startswith("-")]
    return [(key, value.strip("'\"")) for key, equals, value in pairs if equals]


def _setting(key: str, value: str) -> str:
    """Return a setting with norm synonyms and `probe=full` replaced, and lists in brackets."""
    if key == "probe" and value == "full":
        value = f"[{','.join(option_names('probe'))}]"
    elif key == "norm" or key.startswith("norm@"):
        value = ",".join(map(norm_name, value.split(",")))
    elif key in _LISTS:
        value = value if value.startswith(("'[", '"[')) else f"[{_as_text(value.strip('[]'))}]"
    elif key in text_keys():
        value = _as_text(value)
    elif key in _TEXTS and value != "null" and not value.startswith(("'", '"')):
        value = quoted(value)
    elif takes_number(SHORT.get(key, key)) and _NO_TEXT.fullmatch(value.strip("'\"")):
        value = value.strip("'\"")
    return f"{key}={value}"


def _as_text(value: str) -> str:
    """Return a value, or several for a sweep, with quotes where Hydra would not read text."""
    if any(mark in value for mark in "'\"[({"):
        return value
    return ",".join(quoted(each) if _NO_TEXT.fullmatch(each) else each for each in value.split(","))


def with_full_keys(settings: Sequence[str]) -> list[str]:
    """Return settings with full keys; `epochs=2` without `steps=` lifts the limit on steps."""
    pairs = [text.partition("=") for text in settings]
    words = [f"{SHORT.get(key, key)}{equals}{value}" for key, equals, value in pairs]
    lifted = lifts_steps([key for key, _, _ in pairs])
    return [*words, f"{SHORT['steps']}=null"] if lifted else words


def quoted(text: str) -> str:
    """Return text in quotes for Hydra, with backslashes before a quote or the end doubled."""
    inner = _BEFORE_QUOTE.sub(lambda m: m[1] * 2 + ("\\'" if m[2] else ""), text)
    return f"'{inner}'"


# Checks before Hydra reads anything ---------------------------------------------------------------


def check_arguments(arguments: Sequence[str]) -> None:
    """Raise UserError for a wrong flag, unreadable text, or a list where one option belongs."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser = OverridesParser.create()
    for before, text in pairwise(["", *arguments]):
        key, equals, value = text.partition("=")
        if text.startswith("-"):
            if key not in _FLAGS and not key[1:2].isdigit():
                hint = meant(key.lstrip("-").replace("-", "_"))
                raise UserError(f"unknown flag {key}; give values as key=value.{hint}")
        elif not equals and not before.startswith("-") and not text.startswith("~"):
            raise UserError(f"{text!r:.80}: expected key=value, such as norm=bn, or a .yaml file")
        elif equals or text.startswith("~"):  # anything else is the argument of a flag
            try:
                parser.parse_override(text)
            except Exception as error:  # from the parser, or from Python when it builds the value
                hint = str(error).splitlines()[0]
                if isinstance(error, HydraException) and not _SPECIAL.intersection(value):
                    hint += f"; quote the value: \"{key}='{value}'\""  # such as a path in Chinese
                raise UserError(f"{text!r:.80} cannot be read: {hint}") from None
            if {"/", "@"} & {*key} and key[0] not in "+~" and not is_group(key):
                raise UserError(no_such_key(key))
            if value.startswith("[") and key not in _SEVERAL and key in run_groups():
                sweep = f"normlab train -m {key}={value.strip('[]').replace(' ', '')}"
                raise UserError(f"{text}: {key} accepts one option; to sweep over several: {sweep}")


def first_run(arguments: Sequence[str]) -> list[str]:
    """Return the settings of a sweep's first run; of a search, without the keys it searches."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    words: list[str] = []
    parser = OverridesParser.create()
    for text in arguments:
        if text.startswith(("-", "hydra")):
            continue
        override = parser.parse_override(text)
        if not override.is_sweep_override():
            words.append(text)
        elif override.is_discrete_sweep():
            words.append(f"{override.get_key_element()}={next(override.sweep_string_iterator())}")
    return words


def check_given_once(arguments: Sequence[str]) -> None:
    """Raise UserError for a key typed with two values, because Hydra silently uses the last."""
    values: dict[str, str] = {}
    for name, value in _typed_pairs(arguments):
        key = SHORT.get(name, name)
        if key not in _SEVERAL and values.setdefault(key, value) != value:
            raise UserError(f"{key}={values[key]} and {key}={value} are both given; keep one")
