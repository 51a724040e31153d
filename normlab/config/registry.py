"""The config folder as a registry of options, and the objects built from a config's nodes.

A folder below `configs/` is a group, a YAML file in it is an option, and the comment at the top of
the file is its description; the user's own folders add options to these groups. Listing needs
neither torch nor Hydra. A node in a run's config names an option with its values; its class is
looked up in the option's file when the object is built.
"""

import hashlib
import inspect
import re
import types
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, Union, cast, get_args, get_origin
from typing import get_type_hints as hints_of

import msgspec
import yaml

from normlab.config.folders import PATH, folders, own_line, source_of
from normlab.config.schema import leaves
from normlab.errors import UserError

OPTION, TARGET = "option", "_target_"
"""Keys of a node: its option, in a run's config; its class, in the option's file."""
START_FILE = "checkpoints/last.pt"
"""The file in a run's folder from which another run can start."""

_IMPORTED: dict[Path, str] = {}  # the checksum of each own file whose class was used
_NO_PROSE = re.compile(r"[`$ ]*(@package|normlab|torchrun|python|bash)\s")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is about ten times as fast


_TEXT_LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def _check_keys(node: Any) -> None:
    """Raise UserError for a key that a mapping gives twice; YAML would silently take the last."""
    keys = [str(key.value) for key, _ in node.value]
    if twice := [key for key, count in Counter(keys).items() if count > 1]:
        raise UserError(f"{twice[0]} is given twice")


class _EachOnce(_LOADER):
    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        _check_keys(node)
        return super().construct_mapping(node, deep)


class _TextEachOnce(_TEXT_LOADER):
    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        _check_keys(node)
        return super().construct_mapping(node, deep)


class _OptionLoader(_EachOnce):
    """Reads numbers as YAML 1.2 does: `1e-5` is a number, `010` is ten, and `no` is a word."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

    def construct_yaml_int(self, node: Any) -> int:
        return int(node.value)


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+."),
):
    _OptionLoader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), [*_first]
    )
_OptionLoader.add_constructor("tag:yaml.org,2002:int", _OptionLoader.construct_yaml_int)


def read_yaml(path: Path, *, as_text: bool = False) -> Any:
    """Parse a YAML file; UserError with the file's name if it is not YAML, or repeats a key.

    With `as_text`, every value is the text in the file: YAML would read `010` as 8, `no` as false
    and `2024_11_28` as a number.
    """
    return _load(path, _TextEachOnce if as_text else _EachOnce)


def _load(path: Path, loader: Any) -> Any:
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None


def parse_config(text: str) -> Any:
    """Parse a run's `config.yaml`; YAMLError for an alias: they can expand beyond any memory."""
    for token in yaml.scan(text, Loader=_LOADER):
        if isinstance(token, yaml.AliasToken):
            line = token.start_mark.line + 1
            raise yaml.YAMLError(f"line {line} has an alias, which the config of a run never has")
    return yaml.load(text, Loader=_LOADER)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True)
class Option:
    """An option: its file's comment without commands (`details`) and that text's first sentence."""

    name: str
    path: Path
    description: str
    details: str


def paths(group: str, first: Path | None = None) -> dict[str, Path]:
    """Return the file of each option of a group, by name, in the given `folders`.

    Returns {} if there is no such group. Raises UserError for an option in two folders.
    """
    by_name: dict[str, Path] = {}
    for path in (path for root in folders(first) for path in (root / group).glob("*.yaml")):
        if (other := by_name.setdefault(path.stem, path)) != path:
            raise UserError(_twice(group, other, path))
    return dict(sorted(by_name.items()))


def path_of(group: str, name: str) -> Path | None:
    """Return the file of an option, or None, without listing the group.

    Raises UserError for an option in two folders.
    """
    files = [root / group / f"{name}.yaml" for root in folders()]
    files = [file for file in files if file.stem == name and file.is_file()]  # no path in a name
    if len(files) > 1:
        raise UserError(_twice(group, *files))
    return files[0] if files else None


def _twice(group: str, one: Path, other: Path, *_: Path) -> str:
    return f"{group}={one.stem} is in {one} and in {other}: rename one of them"


def option_names(group: str) -> list[str]:
    """Return the names of a group's options without opening files; [] if there is no such group."""
    return list(paths(group))


def options(group: str, first: Path | None = None) -> list[Option]:
    """Return the options of a group (see `paths`); [] if there is no such group."""
    return [_read(path) for path in paths(group, first).values()]


def _read(path: Path) -> Option:
    lines = takewhile(lambda line: line.startswith("#"), path.read_text("utf-8").splitlines())
    prose = [text for line in lines if not _NO_PROSE.match(text := line.lstrip("#").strip())]
    details = "\n".join(prose).strip()
    first = _SENTENCE_END.split(details.split("\n\n")[0].replace("\n", " "))[0]
    return Option(path.stem, path, first, details)


def options_with(group: str) -> dict[str, list[str]]:
    """Return, for each dotted key that a group's option files set, the options that set it."""
    names: dict[str, list[str]] = {}
    for path in paths(group).values():
        for key, value in leaves(_settings(path, group)):
            if key != "defaults" and not key.endswith(TARGET) and "${" not in str(value):
                names.setdefault(key, []).append(path.stem)
    return names


def option_settings(group: str, name: object, key: str) -> Mapping[str, Any]:
    """Return the content of an option's file; UserError with the key if there is none."""
    if (path := path_of(group, str(name))) is None:
        known = ", ".join(option_names(group))
        problem = f"{key}.{OPTION}={name!r:.60} does not exist here: there are {known}"
        raise UserError(f"{problem}. If it is your own, set {PATH} to the folder that has it")
    return _settings(path, group)


def _settings(path: Path, group: str) -> Mapping[str, Any]:
    """Return an option's content, with the values it inherits from other options of its group."""
    content = read_option(path)
    settings: dict[str, Any] = {}
    for name in content.get("defaults", []):
        if isinstance(name, str) and name != "_self_":
            settings |= option_settings(group, name, f"{path}: defaults")
    return settings | {name: value for name, value in content.items() if name != "defaults"}


def read_option(path: Path) -> Mapping[str, Any]:
    """Return the content of an option's file, {} if empty; UserError if it is not a mapping."""
    changed = path.stat()
    return _content(path, changed.st_mtime_ns, changed.st_size)


@lru_cache(maxsize=512)
def _content(path: Path, mtime: int, size: int) -> Mapping[str, Any]:
    """Read an option's file; read it again after each edit."""
    content = _load(path, _OptionLoader)
    if not isinstance(content, dict | None):
        raise UserError(f"{path}: not a mapping: give key: value lines")
    return content or {}


def settings_of(node: object, key: str) -> Mapping[str, Any]:
    """Return the content of a node's option file, including its class; UserError without one.

    `key` is the node's path in a run's config, such as `encoder_norm` or `observe.probe.tid`.
    """
    if not isinstance(node, Mapping):
        raise UserError(f"{key}={node!r:.60} must be a mapping with the key `option`")
    if TARGET in node:  # the content of an option's file, or a node made by a program
        return node
    first, *rest = key.split(".")
    if first == "observe":  # a probe or sink is named by its key
        return option_settings(rest[0], rest[-1], key)
    group = "norm" if first == "sites" or first.endswith("_norm") else key.replace(".", "/")
    return option_settings(group, node.get(OPTION), key)


def with_option_names(
    node: Mapping[str, Any], key: str, choices: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a node composed by Hydra, with option names in place of classes.

    `choices` are the options by group, such as `task/corpus`.
    """
    inner = {
        name: with_option_names(each, f"{key}.{name}", choices)
        if isinstance(each, Mapping)
        else each
        for name, each in node.items()
        if name != TARGET
    }
    option = choices.get(key.replace(".", "/")) if TARGET in node else None
    return inner if option is None else {OPTION: option, **inner}


_Kind = TypeVar("_Kind")


def instantiate(node: object, key: str, kind: type[_Kind], **live: Any) -> _Kind:
    """Build the object of a node, which must be a `kind`, and of all nodes inside it.

    `key` is the node's path in the config, such as `norm` or `observe.probe.tid`; `live` are
    arguments that no config holds, such as a width. Nothing is built unless all values are valid.
    """
    return cast("_Kind", check(node, key, kind, live)(**live))


def check(
    node: object,
    key: str,
    kind: type,
    live: Collection[str] = (),
    settings: Mapping[str, Any] | None = None,
) -> Callable[..., object]:
    """Return a builder of a node that takes the `live` arguments; UserError for invalid values.

    The option's file names the class; `settings` is the file's content, if already known.
    """
    settings = settings or settings_of(node, key)
    assert isinstance(node, Mapping), "settings_of refuses anything else"
    target = _target(str(settings.get(TARGET)), key, kind)
    parameters = inspect.signature(target).parameters
    allowed = [name for name in parameters if name not in live]
    hints = hints_of(target.__init__, include_extras=True)
    values: dict[str, Any] = {}
    for name, value in node.items():
        if name in (OPTION, TARGET):
            continue
        if name not in allowed:
            raise UserError(f"{key}.{name} does not exist: {key} has {', '.join(allowed)}")
        values[name] = _value(value, hints.get(name, Any), f"{key}.{name}", settings.get(name))
    for name in allowed:
        if name not in values and parameters[name].default is inspect.Parameter.empty:
            raise UserError(f"{key}.{name} is missing")
    return partial(_build, target, key, values)


def _build(target: type, key: str, arguments: Mapping[str, Any], **live: Any) -> object:
    values = {name: v() if isinstance(v, partial) else v for name, v in arguments.items()}
    try:
        return target(**live, **values)
    except (TypeError, ValueError) as error:
        if target.__module__.startswith("normlab."):
            raise
        text = ", ".join(f"{name}={value!r}" for name, value in values.items())
        problem = f"{key}: {target.__name__} rejects {text}: {error}{_at(error)}"
        raise UserError(problem) from error


def _at(error: Exception) -> str:
    """Return where the user's own code raised an error that it does not call a `UserError`."""
    line = "" if isinstance(error, UserError) else own_line(error)
    return f" ({line})" if line else ""


def class_of(node: object, key: str, kind: type[_Kind]) -> type[_Kind]:
    """Return the class of a node, which must be a `kind`; UserError otherwise."""
    return _target(str(settings_of(node, key).get(TARGET)), key, kind)


def _target(name: str, key: str, kind: type) -> type:
    module, _, attribute = name.rpartition(".")
    try:
        source = source_of(name)
        target = getattr(import_module(module), attribute)
    except Exception as error:  # a module of the user's own may raise anything
        raise UserError(f"{key}: {name!r} cannot be imported: {error}{_at(error)}") from error
    of_user = any(source.is_relative_to(folder) for folder in folders()[1:])
    if of_user and _IMPORTED.setdefault(source, checksum := sha256(source)) != checksum:
        raise UserError(f"{key}: {source} has changed since it was imported: start Python again")
    if not inspect.isclass(target) or not issubclass(target, kind) or inspect.isabstract(target):
        raise UserError(f"{key}: {name!r} is not a concrete subclass of {kind.__name__}")
    return target


def _value(value: Any, hint: Any, key: str, settings: Any) -> Any:
    """Return a builder if the value is a node, else the value converted to its annotation."""
    choices = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    default = settings
    if isinstance(value, Mapping) and (OPTION in value or TARGET in value):
        default = settings_of(value, key)
    if isinstance(value, Mapping) and isinstance(default, Mapping) and TARGET in default:
        for kind in choices:
            if inspect.isclass(kind) and kind not in (str, bool, int, float, type(None)):
                return check(value, key, kind, settings=default)
        raise UserError(f"{key} takes a value, not an option")
    try:
        return msgspec.convert(value, hint)
    except TypeError:  # a type of torch, whose class checks the value itself
        return value
    except msgspec.ValidationError as error:
        words = [str(w) for kind in choices if get_origin(kind) is Literal for w in get_args(kind)]
        words = [*(["true", "false"] if words and bool in choices else []), *words]
        problem = f" must be {', '.join(words)}" if words else f": {error}"
        raise UserError(f"{key}={value!r}{problem}") from None
