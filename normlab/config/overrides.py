"""Settings as typed on a command line: their form for Hydra, and fixes for errors.

`my.yaml` is an experiment in this file, and `norm=batchnorm` is `norm=bn`. `wandb=true` adds a
sink, and `wandb.project=mine` sets `observe.sink.wandb.project` and adds it too.
`include=FOLDER` adds a folder of the user's own options to the environment variable `NORMLAB_PATH`.
"""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from typing import Any

from normlab.config.experiments import EXPERIMENT, chosen_file, is_file, names_in, settings_of
from normlab.config.folders import groups, included, of_your_own
from normlab.config.ranges import range_of, takes_number
from normlab.config.registry import START_FILE, option_names, option_settings, options_with
from normlab.config.schema import LATER, NORM_KEYS, OPTIONS, SHORT, text_keys, top_level_keys
from normlab.config.suggestions import choice_of, did_you_mean, suggestion
from normlab.config.trackers import TRACKERS, with_trackers
from normlab.errors import UserError

_NORMS = dict(layer="ln", batch="bn", group="gn", instance="in", rms="rms", power="pn")
_SYNONYMS = {"norm": _NORMS, "task": dict(bert="mlm", gpt="lm")}

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
_MOST = 3  # suggestions at most
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
        if is_file(text):
            experiments.append(chosen_file(text))
        elif equals and key.lstrip("+") == EXPERIMENT:
            experiments += [value] if is_sweep(value) else names_in(value)
        else:
            settings.append(_setting(key, value) if equals else text)
    if len(experiments) > 1 and any(map(is_sweep, experiments)):
        raise UserError(f"{EXPERIMENT}={experiments[0]} and {experiments[1]}: name only one")
    choice = _choice(experiments)
    words = [*choice, *with_trackers(settings, choice)]
    check_arguments(words)
    return words


def is_sweep(value: str) -> bool:
    """Return whether a value stands for several, as in `a,b` or `glob(*)`."""
    return not value.startswith("[") and any(mark in value for mark in ",(")


def _choice(experiments: Sequence[str]) -> list[str]:
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


def norm_name(name: str) -> str:
    """Return the option that a norm's name stands for: `bn` for `batchnorm` or `BatchNorm`."""
    word = re.sub("[-_]", "", name.lower())
    return _NORMS.get(word.removesuffix("norm"), name) if word.endswith("norm") else name


def in_full(settings: Sequence[str]) -> list[str]:
    """Return settings with full keys; `epochs=2` without `steps=` lifts the limit on steps."""
    pairs = [text.partition("=") for text in settings]
    keys = {key for key, _, _ in pairs}
    lifts = "epochs" in keys and not keys & {"steps", SHORT["steps"]}
    words = [f"{SHORT.get(key, key)}{equals}{value}" for key, equals, value in pairs]
    return [*words, *([f"{SHORT['steps']}=null"] if lifts else [])]


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
            if {"/", "@"} & {*key} and key[0] not in "+~" and not _is_group(key):
                raise UserError(_no_such_key(key))
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


# Errors ------------------------------------------------------------------------------------------


def run_groups() -> list[str]:
    """Return the groups a run chooses from, and `norm@` keys; not `article`, `claim`, `study`."""
    kinds = [group for group in groups() if group not in ("article", "claim", "study")]
    return [*kinds, *(f"norm@{key}" for key in NORM_KEYS[1:])]


def _is_group(key: str) -> bool:
    return key.startswith("hydra/") or key in run_groups()


def settings_of_experiments(arguments: Sequence[str], choices: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that a run's experiments set, by dotted key.

    Raises UserError for a key that the run's option does not have; Hydra would add it.
    """
    settings = settings_of(names_in(typed(arguments).get(EXPERIMENT, "")))
    for key in settings:
        node, _, rest = key.partition(".")
        group = "norm" if node in NORM_KEYS else node
        option, names = choices.get(node), option_names(group)
        if not rest or option not in names:
            continue
        has = {*option_settings(group, option, node), *names}  # `norm: {rms: {eps: 1e-6}}`, too
        has |= {name.partition("/")[2] for name in groups() if name.startswith(f"{group}/")}
        has |= {"model": set(LATER), "optim": {"groups"}}.get(node, set())
        if rest.partition(".")[0] not in has:
            raise UserError(_no_such_key(key))
    return settings


def _no_such_key(key: str) -> str:
    return f"{key} does not exist; normlab train --cfg job shows all keys.{meant(key)}"


def meant(key: str) -> str:
    """Return ` Did you mean ...?` for an unknown key, or "" if no key is similar.

    If other options of the group have the key, the text names those options instead.
    """
    node, _, last = key.partition(".")
    if last and (having := options_with(node).get(last)):
        return f" {node}={', '.join(having)} {'has' if len(having) == 1 else 'have'} it."
    known = [*SHORT, *TRACKERS, *run_groups(), *top_level_keys()]
    known += [f"{node}.{name}" for node in (*OPTIONS, "norm") for name in options_with(node)]
    words: dict[str, list[str]] = {}
    for name in known:
        words.setdefault(name.rpartition(".")[2], []).append(name)
    near = get_close_matches(key.rpartition(".")[2], words, n=_MOST, cutoff=0.7)
    keys = dict.fromkeys(name for word in near for name in words[word])
    # Suggest a short key or the key it stands for, not both.
    long = {SHORT[name] for name in keys if name in SHORT}
    return suggestion([name for name in keys if name not in (SHORT if last else long)][:_MOST])


def no_option(group: str, option: str) -> str:
    """Return the message for an unknown option: the group's options, or the package to install."""
    if group.startswith("hydra/"):
        package = f"hydra-{option.partition('_')[0]}-{group.rpartition('/')[2]}"
        return f"{group}={option} is missing: pip install -c constraints.txt {package}"
    known, word = option_names(group), option.lower().replace("_", "")
    synonym = _SYNONYMS.get(group, {}).get(word.removesuffix("norm") or word, "")
    near = suggestion([synonym]) if synonym in known else did_you_mean(option, known)
    choice = choice_of(known, f"normlab list {group}", near)
    return f"no option {option!r:.60} of the group {group!r}{choice}.{of_your_own()}"


def error_line(error: Exception, arguments: Sequence[str] = ()) -> str:
    """Return a Hydra or OmegaConf error as one line, with the key and the allowed values.

    For a missing key such as `task.source.size`, OmegaConf may name only the missing node,
    `task.source`; the key that was typed is among the `arguments`.
    """
    from omegaconf import errors

    if missing := getattr(error, "missing_cfg_file", None):  # Hydra's MissingConfigException
        group, _, option = missing.removesuffix(".yaml").rpartition("/")
        return no_option(group, option)
    causes = (error, error.__cause__, error.__context__)  # Hydra wraps OmegaConf's
    cause = next((e for e in causes if isinstance(e, errors.OmegaConfBaseException)), None)
    if cause is None or not (key := cause.full_key):
        return "; ".join(filter(None, map(str.strip, str(error).splitlines())))
    if isinstance(cause, errors.ConfigAttributeError | errors.ConfigKeyError):
        key = next((name for name in typed(arguments) if name.startswith(f"{key}.")), key)
        if key.startswith("optim.groups"):
            return f"{key} must be added with a plus sign: give +{key}=VALUE"
        return _no_such_key(key)
    problem = str(cause).splitlines()[0]  # further lines name the key and types of OmegaConf
    if isinstance(cause, errors.MissingMandatoryValue):
        return f"{key} must be given, as {key}=VALUE"
    if isinstance(cause, errors.ValidationError):
        limits = range_of(key)
        return f"{key}={cause.value} must be {limits.allowed}" if limits else f"{key}: {problem}"
    return problem if key in problem else f"{key}: {problem}"


def start_file(name: str, runs: Path) -> Path:
    """Return the weights file of a run, given by its path or its name below `runs_dir`."""
    place = Path(name) if Path(name).exists() else runs / name
    files = sorted(place.glob(f"**/{START_FILE}"))
    if len(files) > 1:
        one = files[0].parents[1]
        raise UserError(f"start_from={name} has {len(files)} runs; name one, such as {one}")
    if not files:
        folders = {up for path in runs.glob(f"**/{START_FILE}") for up in path.parents[1:]}
        names = [str(up.relative_to(runs)) for up in folders if runs in up.parents]
        near = did_you_mean(name.removeprefix(f"{runs}/"), names)
        raise UserError(f"start_from={name}: not a trained run, {START_FILE} is missing.{near}")
    return files[0]


def check_option(group: str, option: str) -> None:
    """Raise UserError, listing the group's options, if the group has no such option."""
    if option not in option_names(group):
        raise UserError(no_option(group, option))
