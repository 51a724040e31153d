"""Settings as typed on a command line: expands short forms, and suggests fixes for errors.

`experiment=bert_bn` stands for the settings in `configs/experiment/bert_bn.yaml`, and `my.yaml` for
those in this file; `lr=1e-3` for `optim.lr=1e-3`, `norm=batchnorm` for `norm=bn`. `wandb=true` adds
a sink, and `wandb.project=mine` sets `observe.sink.wandb.project` and adds it too.
`include=FOLDER` adds a folder of the user's own options to the environment variable `NORMLAB_PATH`.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from normlab.config.folders import INCLUDE, groups, included, of_your_own
from normlab.config.ranges import takes_number
from normlab.config.registry import option_names, options_with, paths, read_yaml
from normlab.config.schema import NORM_KEYS, OPTIONS, top_level_keys
from normlab.errors import UserError

SHORT = {
    **{"lr": "optim.lr", "steps": "budget.steps", "epochs": "budget.epochs"},
    **{"name": "observe.name", "tags": "observe.tags", "debug": "observe.debug"},
}
"""Short keys, with what each stands for."""
EXPERIMENT = "experiment"
TRACKERS = ("wandb", "tensorboard")
_NORMS = dict(layer="ln", batch="bn", group="gn", instance="in", rms="rms", power="pn")
_SYNONYMS = {"norm": _NORMS, "task": dict(bert="mlm", gpt="lm")}

_SEVERAL = ("probe", "sink")  # groups from which a run takes several options
_LISTS = ("tags", "wandb.tags")  # keys whose value is a list, with or without brackets
_TEXTS = (
    "wandb.project",
    "wandb.entity",
    "wandb.name",
    "wandb.group",
    "wandb.job_type",
    "wandb.notes",
)
_CORPUS = tuple(f"task.corpus.{name}" for name in ("name", "source_language", "target_language"))
# What Hydra reads as a number or a truth value, or cannot read.
_NO_TEXT = re.compile(r"[-+]?[0-9._]+(e[-+]?[0-9_]+)?|true|false|nan|inf|~/.*", re.IGNORECASE)
_WHOLE = ("sites", "observe.targets")  # keys whose value is a mapping
_MOST = 3  # suggestions at most
# Hydra's own flags. Any other word with a leading dash is a key that was typed like a flag.
_FLAGS = {
    *("-h", "--help", "--hydra-help", "--version", "-c", "--cfg", "--resolve", "-p"),
    *("--package", "-r", "--run", "-m", "--multirun", "-sc", "--shell-completion", "-i", "--info"),
}
_PLAIN = re.compile(r"[A-Za-z0-9_./+:@%-]+")  # needs no quotes in Hydra's grammar
_SPECIAL = frozenset("{}[](),'\"$`!\\\n")  # special to Hydra's grammar or a shell, even in quotes
_BEFORE_QUOTE = re.compile(r"(\\*)('|$)")


class FromFile(str):
    """A setting in a file that was named on the command line; `path` is the file."""

    path: Path

    @classmethod
    def of(cls, text: str, path: Path) -> "FromFile":
        setting = cls(text)
        setting.path = path
        return setting


def written_out(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with experiments, files and short keys replaced by full settings.

    Settings from files come first, except keys that are also typed; of several files, the last one
    wins. Raises UserError for an unknown experiment, a file that is not a mapping of settings,
    an unknown key of W&B or TensorBoard, or what `check_arguments` refuses.
    """
    typed: list[str] = []
    of_files: dict[str, str] = {}
    for text in included(arguments):
        key, equals, value = text.partition("=")
        if key == EXPERIMENT or is_file(text):
            settings = _settings_of_file(Path(text) if is_file(text) else _experiment(value))
            if is_file(text):
                settings = [FromFile.of(setting, Path(text)) for setting in settings]
            of_files |= _by_key(settings)
        else:
            known = isinstance(text, FromFile)  # it was written out before
            typed.append(_setting(key, value) if equals and not known else text)
    typed = _in_full(typed)
    given = _by_key(typed)
    found = _with_trackers([*(t for key, t in of_files.items() if key not in given), *typed])
    check_arguments(found)
    return found


def _by_key(settings: Sequence[str]) -> dict[str, str]:
    return {text.partition("=")[0]: text for text in settings}


def typed(arguments: Sequence[str]) -> dict[str, str]:
    """Return each key's last value from `key=value` arguments, unquoted; flags are skipped."""
    pairs = [text.partition("=") for text in arguments if not text.startswith("-")]
    return {key: value.strip("'\"") for key, equals, value in pairs if equals}


def is_file(text: str) -> bool:
    """Return whether an argument names a file of settings."""
    return "=" not in text and text.endswith((".yaml", ".yml"))


def _experiment(name: str) -> Path:
    """Return the file of an experiment; UserError if there is none, or several are named."""
    there = paths(EXPERIMENT)
    if "," in name:
        said = f"{EXPERIMENT}={name}: a command or a sweep takes one experiment"
        raise UserError(f"{said}: run one command per experiment")
    if name not in there:
        near = did_you_mean(name, [*there]) + of_your_own()
        raise UserError(f"no experiment {name!r:.60}: there are {', '.join(there)}.{near}")
    return there[name]


def _setting(key: str, value: str) -> str:
    """Return a setting with norm synonyms and `probe=full` replaced, and lists in brackets."""
    if key == "probe" and value == "full":
        value = f"[{','.join(option_names('probe'))}]"
    elif key == "norm" or key.startswith("norm@"):
        value = ",".join(map(norm_name, value.split(",")))
    elif key in _LISTS:
        value = value if value.startswith(("'[", '"[')) else f"[{_as_text(value.strip('[]'))}]"
    elif key in _text_keys():
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


@lru_cache(maxsize=1)
def _text_keys() -> set[str]:
    """Return the keys whose value is text."""
    keys = {key for key, kind in top_level_keys().items() if kind in (str, str | None)}
    return {*keys, *(key for key, full in SHORT.items() if full in keys), "start_from", *_CORPUS}


def norm_name(name: str) -> str:
    """Return the option that a norm's name stands for: `bn` for `batchnorm` or `BatchNorm`."""
    word = re.sub("[-_]", "", name.lower())
    return _NORMS.get(word.removesuffix("norm"), name) if word.endswith("norm") else name


def _in_full(settings: Sequence[str]) -> list[str]:
    """Return settings with full keys; `epochs=2` without `steps=` lifts the limit on steps."""
    keys = _by_key(settings)
    found = []
    for text in settings:
        key, equals, value = text.partition("=")
        found.append(f"{SHORT[key]}={value}" if equals and key in SHORT else text)
    if "epochs" in keys and not {"steps", "budget.steps"}.intersection(keys):
        found.append("budget.steps=null")
    return found


def _with_trackers(arguments: Sequence[str]) -> list[str]:
    """Replace `wandb=true` and `wandb.KEY=VALUE` by the sink and its settings."""
    found: list[str] = []
    wanted: dict[str, bool] = {}
    settings: list[str] = []
    for text in arguments:
        key, _, value = text.partition("=")
        name, _, own = key.partition(".")
        if name not in TRACKERS:
            found.append(text)
        elif own:
            there = [each for each, sinks in options_with("sink").items() if name in sinks]
            if own not in there:
                has = f"{name} has {', '.join(there)}" if there else f"give {name}=true"
                near = did_you_mean(own, there, before=f"{name}.")
                raise UserError(f"{key} does not exist: {has}.{near}")
            wanted.setdefault(name, True)
            settings.append(text)
        elif value in ("true", "false"):
            wanted[name] = value == "true"
        else:
            raise UserError(f"{text}: give {name}=true or {name}=false")
    if not wanted:
        return found
    sinks = _by_key(found).get("sink", "sink=[console,jsonl]").removeprefix("sink=")
    names = dict.fromkeys([*re.findall(r"\w+", sinks), *wanted])
    return [
        *(text for text in found if not text.startswith("sink=")),
        *(f"observe.sink.{text}" for text in settings if wanted[text.partition(".")[0]]),
        f"sink=[{','.join(name for name in names if wanted.get(name, True))}]",
    ]


# Files of settings --------------------------------------------------------------------------------


def _settings_of_file(path: Path) -> list[str]:
    """Return the settings in a YAML file as `key=value`; UserError if it has none."""
    if not path.is_file():
        raise UserError(f"{path}: {'a folder, not a file' if path.is_dir() else 'no such file'}")
    content = read_yaml(path, as_text=True)
    as_in = f"give key: value lines, as in configs/{EXPERIMENT}"
    if not isinstance(content, Mapping):
        raise UserError(f"{path}: no settings; {as_in}")
    if "choices" in content:
        raise UserError(f"{path}: the config of a whole run, not settings; {as_in}")
    if INCLUDE in content:
        raise UserError(f"{path}: type {INCLUDE}=FOLDER: a file cannot name code that is to run")
    if "defaults" in content:
        raise UserError(f"{path}: defaults: write norm: bn instead of - override /norm: bn")
    full = _in_full([_setting(key, _value(value)) for key, value in _flat(content, "")])
    keys = Counter(text.partition("=")[0] for text in full)
    if twice := [key for key, count in keys.items() if count > 1]:  # such as lr and optim.lr
        raise UserError(f"{path}: {twice[0]} is given twice")
    return full


def _flat(settings: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield each setting with its dotted key."""
    for name, value in settings.items():
        if isinstance(value, Mapping) and (key := f"{prefix}{name}") not in _WHOLE:
            yield from _flat(value, f"{key}.")
        else:
            yield f"{prefix}{name}", value


def _value(value: Any) -> str:
    """Return a value in Hydra's grammar."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_value, value)) + "]"
    text = "null" if value in ("", "~") else str(value)
    return text if _PLAIN.fullmatch(text) else quoted(text)


def quoted(text: str) -> str:
    """Return text in quotes for Hydra, with backslashes before a quote or the end doubled."""
    inner = _BEFORE_QUOTE.sub(lambda m: m[1] * 2 + ("\\'" if m[2] else ""), text)
    return f"'{inner}'"


# Checks before Hydra reads anything ---------------------------------------------------------------


def check_arguments(arguments: Sequence[str]) -> None:
    """Raise UserError for a wrong flag, unreadable text, or a list where one option belongs."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parser = OverridesParser.create()
    for before, text in pairwise(["", *arguments]):
        key, equals, value = text.partition("=")
        if text.startswith("-"):
            if key not in _FLAGS and not key[1:2].isdigit():
                said = meant(key.lstrip("-").replace("-", "_"))
                raise UserError(f"unknown flag {key}; give values as key=value.{said}")
        elif not equals and not before.startswith("-") and not text.startswith("~"):
            raise UserError(f"{text!r:.80}: expected key=value, such as norm=bn, or a .yaml file")
        elif equals or text.startswith("~"):  # anything else is the argument of a flag
            try:
                parser.parse_override(text)
            except Exception as error:  # from the parser, or from Python when it builds the value
                said = str(error).splitlines()[0]
                if said.startswith("token recognition error") and not _SPECIAL.intersection(value):
                    said += f"; quote the value: \"{key}='{value}'\""  # such as a path in Chinese
                raise UserError(f"{text!r:.80} cannot be read: {said}") from None
            if value.startswith("[") and key not in _SEVERAL and key in run_groups():
                sweep = f"normlab train -m {key}={value.strip('[]').replace(' ', '')}"
                raise UserError(f"{text}: {key} takes one option; a sweep over several is {sweep}")


def first_run(arguments: Sequence[str]) -> list[str]:
    """Return the settings of a sweep's first run; of a search, without the keys it searches."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    found: list[str] = []
    parser = OverridesParser.create()
    for text in arguments:
        if text.startswith(("-", "hydra")):
            continue
        override = parser.parse_override(text)
        if not override.is_sweep_override():
            found.append(text)
        elif override.is_discrete_sweep():
            found.append(f"{override.get_key_element()}={next(override.sweep_string_iterator())}")
    return found


def check_given_once(arguments: Sequence[str]) -> None:
    """Raise UserError for a key typed with two values, since Hydra silently takes the last."""
    given: dict[str, str] = {}
    for text in arguments:
        for name, value in typed([text]).items():
            key = SHORT.get(name, name)
            if key not in _SEVERAL and given.setdefault(key, value) != value:
                raise UserError(f"{key}={given[key]} and {key}={value} are both given; keep one")


# Suggestions --------------------------------------------------------------------------------------


def run_groups() -> list[str]:
    """Return the groups a run chooses from: all except `claim` and `study`, plus `norm@` keys."""
    own = [group for group in groups() if group not in ("claim", "document", "study")]
    return [*own, *(f"norm@{key}" for key in NORM_KEYS[1:])]


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
    # Of a short key and the key it stands for, suggest one.
    long = {SHORT[name] for name in found if name in SHORT}
    return _said([name for name in found if name not in (SHORT if own else long)][:_MOST])


def did_you_mean(word: str, there: Sequence[str], *, before: str = "") -> str:
    """Return ` Did you mean ...?` with the most similar words, or "" if none is similar.

    `before` is put before each of them.
    """
    near = get_close_matches(word.lower(), there, n=_MOST, cutoff=0.5)
    return _said([f"{before}{each}" for each in near])


def _said(names: Sequence[str]) -> str:
    return f" Did you mean {' or '.join(names)}?" if names else ""


def no_option(group: str, option: str) -> str:
    """Return the message for an unknown option: the group's options, or the package to install."""
    if group.startswith("hydra/"):
        package = f"hydra-{option.partition('_')[0]}-{group.rpartition('/')[2]}"
        return f"{group}={option} is missing: pip install -c constraints.txt {package}"
    there, word = option_names(group), option.lower().replace("_", "")
    synonym = _SYNONYMS.get(group, {}).get(word.removesuffix("norm") or word, "")
    near = _said([synonym]) if synonym in there else did_you_mean(option, there)
    said = (
        f"no option {option!r:.60} of the group {group!r}; choose from {', '.join(there) or 'none'}"
    )
    return f"{said}.{near}{of_your_own()}"


def check_option(group: str, option: str) -> None:
    """Raise UserError, listing the group's options, if the group has no such option."""
    if option not in option_names(group):
        raise UserError(no_option(group, option))
