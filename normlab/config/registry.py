"""The config folder as a registry: its groups, options and keys.

A folder below `configs/` is a group, a YAML file in it an option, and the comment that opens the
file its description. Read as plain text, without torch or hydra, so that lists
answer at once.
"""

import inspect
import re
import types
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

_PACKAGE = Path(__file__).resolve().parents[1]
# An installed wheel carries the folder inside the package; in a checkout it is at the root.
_INSTALLED = _PACKAGE / "configs"
CONFIG_DIR = _INSTALLED if _INSTALLED.is_dir() else _PACKAGE.parent / "configs"

_COMMAND = re.compile(r"^[`$ ]*(normlab|torchrun|python|bash)\s")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_OF_HYDRA = ("defaults", "hydra")
OPTION, TARGET = "option", "_target_"
"""Keys of a node: the option that it is, in a run's config; its class, in the option's file."""
# Folders of what runs are compared by: no choice of a run.
_NO_CHOICE = ("claim", "study")


@dataclass(frozen=True)
class Option:
    """One choice of a group: its name on the command line, its file, and what that says it is.

    `command` is the command that the file opens with, or "" where it gives none; `description` is
    the first sentence after it, `details` all of the comment.
    """

    group: str
    name: str
    path: Path
    command: str
    description: str
    details: str


def groups(root: Path = CONFIG_DIR) -> list[str]:
    """List the groups: the folders with a YAML file, as paths such as `norm` or `hydra/sweeper`."""
    folders = {path.parent for path in root.rglob("*.yaml")} - {root}
    return sorted(folder.relative_to(root).as_posix() for folder in folders)


def run_groups(root: Path = CONFIG_DIR) -> list[str]:
    """List the groups that a run chooses from: all but studies and claims."""
    return [group for group in groups(root) if group not in _NO_CHOICE]


def sites(root: Path = CONFIG_DIR) -> list[str]:
    """List the places that a group can fill a second time, such as `norm@decoder_norm`.

    They are the entries with an `@` of the defaults list of the files at the root of the folder.
    """
    entries = [entry for node in _root_files(root) for entry in node.get("defaults", [])]
    keys = [str(key) for entry in entries if isinstance(entry, dict) for key in entry]
    named = [key.removeprefix("override ").removeprefix("optional ").strip("/") for key in keys]
    return sorted({name for name in named if "@" in name})


def option_names(group: str, root: Path = CONFIG_DIR) -> list[str]:
    """List the names of a group's options without opening their files; empty for no such group."""
    return sorted(path.stem for path in (root / group).glob("*.yaml"))


def settings_of(node: object, key: str) -> Mapping[str, Any]:
    """Return what the file of a node's option holds, its class among it.

    `key` is the node's path in a run's config, such as `encoder_norm` or `observe.probe.tid`.
    Raises ValueError naming an option that does not exist here.
    """
    if not isinstance(node, Mapping):
        raise ValueError(f"{key}={node!r:.60} is no node: it must be a mapping with an option")
    if TARGET in node:  # an option's file itself, or a node that a program made
        return node
    first, *rest = key.split(".")
    if first == "observe":  # a probe or sink is named by its key
        return option_settings(rest[0], rest[-1], key)
    group = "norm" if first == "sites" or first.endswith("_norm") else key.replace(".", "/")
    return option_settings(group, node.get(OPTION), key)


def option_settings(
    group: str, name: object, key: str, root: Path = CONFIG_DIR
) -> Mapping[str, Any]:
    """Return what an option's file holds; ValueError naming the key of an option there is not."""
    there = option_names(group, root)
    if name not in there:
        raise ValueError(
            f"{key}.{OPTION}={name!r:.60} does not exist here: there are {', '.join(there)}"
        )
    path = root / group / f"{name}.yaml"
    return _settings(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=512)
def _settings(path: Path, changed: int) -> Mapping[str, Any]:
    """Read an option's file, with what it takes from other options of its group."""
    from omegaconf import OmegaConf  # a list of options is there at once without

    del changed
    content: Any = OmegaConf.to_container(OmegaConf.load(path)) or {}
    found: dict[str, Any] = {}
    for name in content.pop("defaults", []):
        if isinstance(name, str) and name != "_self_":
            other = path.with_name(f"{name}.yaml")
            found |= _settings(other, other.stat().st_mtime_ns)
    return found | content


def named(node: Mapping[str, Any], key: str, choices: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node that Hydra composed with its option in place of its class.

    `choices` are the options by group. Raises ValueError for a class that is not the option's.
    """
    option = choices.get(key)
    return _named({OPTION: option, **node}, settings_of({OPTION: option}, key), key, choices)


def _named(
    node: Mapping[str, Any], settings: Mapping[str, Any], key: str, choices: Mapping[str, Any]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in node.items():
        inner = f"{key}.{name}"
        if name == TARGET:
            if value != settings.get(TARGET):
                raise ValueError(
                    f"{inner}={value!r:.60}: a run chooses options, and classes stand in the files "
                    f"of configs/: give {key.split('.')[0]}=OPTION"
                )
        elif not isinstance(value, Mapping):
            found[name] = value
        elif TARGET in value and (option := choices.get(inner.replace(".", "/"))):
            within = settings_of({OPTION: option}, inner)
            found[name] = _named({OPTION: option, **value}, within, inner, choices)
        else:
            within = settings.get(name)
            given = within if isinstance(within, Mapping) else {}  # a value, replaced by a node
            found[name] = _named(value, given, inner, choices)
    return found


def options(group: str, root: Path = CONFIG_DIR) -> list[Option]:
    """List the options of a group; raises `ValueError` naming the groups there are."""
    found = [_read(path, group) for path in sorted((root / group).glob("*.yaml"))]
    if not found:
        raise ValueError(f"no config group {group!r} in {root}; allowed: {', '.join(groups(root))}")
    return found


def top_level_keys(root: Path = CONFIG_DIR) -> list[str]:
    """List the dotted keys of the YAML files at the root of the folder, such as `budget.steps`."""
    nodes = _root_files(root)
    found = {leaf for node in nodes for key in node for leaf in _leaves(node[key], str(key))}
    return sorted(key for key in found if key.split(".")[0] not in _OF_HYDRA)


def option_keys(group: str, root: Path = CONFIG_DIR) -> list[str]:
    """List the dotted keys that the options of a group have, without those taken from others."""
    return list(options_with(group, root))


def options_with(group: str, root: Path = CONFIG_DIR) -> dict[str, list[str]]:
    """Return by key of `option_keys` the names of the options whose own files have it."""
    import yaml

    found: dict[str, list[str]] = {}
    for path in sorted((root / group).glob("*.yaml")):
        node = yaml.safe_load(path.read_text(encoding="utf-8"))
        for key, value in (node or {}).items():
            if not (key.startswith("_") or key == "defaults"):
                for leaf in _leaves(value, str(key)):
                    if "_target_" not in leaf:
                        found.setdefault(leaf, []).append(path.stem)
    return found


def _root_files(root: Path) -> list[dict[str, Any]]:
    import yaml  # a folder is listed faster without it

    nodes = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in root.glob("*.yaml")]
    return [node for node in nodes if isinstance(node, dict)]


def _read(path: Path, group: str) -> Option:
    lines = _header(path)
    commands = [line for line in lines if _COMMAND.match(line)]
    prose = [line for line in lines if not _COMMAND.match(line)]
    details = "\n".join(prose).strip()
    paragraph = details.split("\n\n")[0].replace("\n", " ")
    return Option(
        group=group,
        name=path.stem,
        path=path,
        command=commands[0].strip("`$ ") if commands else "",
        description=_SENTENCE_END.split(paragraph)[0],
        details=details,
    )


def _header(path: Path) -> list[str]:
    """Read the comment at the top of a file, without the `#` and without Hydra's directives."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        text = line.lstrip("#").strip()
        if not text.startswith("@package"):
            lines.append(text)
    return lines


def _leaves(node: object, prefix: str) -> Iterator[str]:
    """Yield the dotted keys of a node, but for those whose values are taken from elsewhere."""
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from _leaves(value, f"{prefix}.{key}")
    elif "${" not in str(node):
        yield prefix


_Kind = TypeVar("_Kind")


def instantiate(node: object, key: str, kind: type[_Kind], **live: Any) -> _Kind:
    """Build the object of a node, a `kind`, and those of the nodes inside it.

    `key` is the node's path in the config, such as `norm` or `observe.probe.tid`; `live` are
    objects that no config holds, such as a width. Nothing is built unless all of it fits.
    """
    return cast("_Kind", _plan(node, key, kind, live, settings_of(node, key)).build(live))


def check(node: object, key: str, kind: type, live: Collection[str] = ()) -> None:
    """Raise ValueError where `instantiate` would refuse a node; `live` names its live objects."""
    _plan(node, key, kind, live, settings_of(node, key))


@dataclass(frozen=True)
class _Plan:
    """A class and its checked values; nodes inside are plans of their own."""

    key: str
    target: type
    values: Mapping[str, Any]

    def build(self, live: Mapping[str, Any]) -> object:
        values = {
            name: value.build({}) if isinstance(value, _Plan) else value
            for name, value in self.values.items()
        }
        if self.target.__module__.startswith("normlab."):
            return self.target(**live, **values)
        try:
            return self.target(**live, **values)
        except (TypeError, ValueError) as error:  # what torch finds wrong does not name the key
            text = ", ".join(f"{name}={value!r}" for name, value in values.items())
            raise ValueError(
                f"{self.key}: {self.target.__name__} refuses {text}: {error}"
            ) from error


def _plan(
    node: object, key: str, kind: type, live: Collection[str], settings: Mapping[str, Any]
) -> _Plan:
    """Check a node against its class; `settings` are what the option's file says of it."""
    target = _target(settings, key, kind)
    assert isinstance(node, Mapping), "what is none has no settings"
    parameters = inspect.signature(target).parameters
    allowed = [name for name in parameters if name not in live]
    hints = get_type_hints(target.__init__)
    values: dict[str, Any] = {}
    for name, value in node.items():
        if name in (OPTION, TARGET):
            continue
        if name not in allowed:
            raise ValueError(f"{key}.{name} does not exist: {key} has {', '.join(allowed)}")
        values[name] = _value(value, hints.get(name, Any), f"{key}.{name}", settings.get(name))
    for name in allowed:
        if name not in values and parameters[name].default is inspect.Parameter.empty:
            raise ValueError(f"{key}.{name} is missing")
    return _Plan(key, target, values)


def _value(value: Any, hint: Any, key: str, settings: Any) -> Any:
    """Return a plan for a node, else the value if it fits the annotation."""
    if not isinstance(value, Mapping):
        return _fit(value, hint, key)
    own = settings_of(value, key) if OPTION in value or TARGET in value else settings
    if not isinstance(own, Mapping) or TARGET not in own:
        return _fit(value, hint, key)
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    kinds = [option for option in options if inspect.isclass(option) and option not in _PLAIN]
    if not kinds:
        raise ValueError(f"{key} takes a value, not an option: allowed is {_say(hint)}")
    return _plan(value, key, kinds[0], (), own)


def locate(node: object, key: str, kind: type[_Kind]) -> type[_Kind]:
    """Return the class of a node's option; ValueError unless its place takes it."""
    return _target(settings_of(node, key), key, kind)


def _target(settings: Mapping[str, Any], key: str, kind: type[_Kind]) -> type[_Kind]:
    name = str(settings.get(TARGET))
    module, _, attribute = name.rpartition(".")
    try:
        target = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{key}: {name!r} cannot be imported: {error}") from error
    if not inspect.isclass(target) or not issubclass(target, kind):
        raise ValueError(
            f"{key}: {name!r} is no {kind.__name__}: an option here names a class that derives "
            f"from {kind.__module__}.{kind.__name__}"
        )
    if inspect.isabstract(target):
        raise ValueError(f"{key}: {name!r} is abstract: name a class that derives from it")
    return target


_PLAIN = (str, bool, int, float, type(None))


def _fit(value: Any, hint: Any, key: str) -> Any:
    """Return `value` if it fits the annotation, else raise ValueError."""
    if not _fits(value, hint):
        raise ValueError(f"{key}={value!r} does not fit: allowed is {_say(hint)}")
    whole = isinstance(value, int) and not isinstance(value, bool)
    numbers = (float,) if hint is float else get_args(hint)
    return float(value) if whole and float in numbers and int not in numbers else value


def _fits(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin is Literal:
        return value in get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, option) for option in get_args(hint))
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint in (str, bool, type(None)):
        return isinstance(value, hint)
    if inspect.isclass(hint) and hint.__module__.startswith("normlab."):
        return isinstance(value, hint)
    return True  # anything richer is the target's own business


def _say(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return ", ".join(map(str, get_args(hint)))
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_say(option) for option in get_args(hint))
    return "null" if hint is type(None) else getattr(hint, "__name__", str(hint))
