"""The config folder as a registry, and the objects that are built from a config's nodes.

A folder below `configs/` is a group, a YAML file in it an option, and the comment at the top of
the file its description. Lists need neither torch nor hydra. A node of a run's config names an
option with its values; the class is looked up in the option's file when the object is built.
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
# An installed wheel has the folder inside the package, a checkout at its root.
_INSTALLED = _PACKAGE / "configs"
CONFIG_DIR = _INSTALLED if _INSTALLED.is_dir() else _PACKAGE.parent / "configs"
OPTION, TARGET = "option", "_target_"
"""Keys of a node: its option, in a run's config; its class, in the option's file."""

_COMMAND = re.compile(r"^[`$ ]*(normlab|torchrun|python|bash)\s")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_NOT_OF_A_RUN = ("claim", "study")  # groups that a run does not choose from
_PLAIN = (str, bool, int, float, type(None))


@dataclass(frozen=True)
class Option:
    """One option of a group, as the comment at the top of its file describes it.

    Attributes:
        command: the command that the comment begins with, or "".
        description: the first sentence after the command.
        details: all of the comment but its commands.
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
    return [group for group in groups(root) if group not in _NOT_OF_A_RUN]


def sites(root: Path = CONFIG_DIR) -> list[str]:
    """List the other places of a group, such as `norm@decoder_norm`.

    They are the entries with an `@` in the defaults lists of the files at the root of the folder.
    """
    entries = [entry for node in _root_files(root) for entry in node.get("defaults", [])]
    keys = [str(key) for entry in entries if isinstance(entry, dict) for key in entry]
    names = [key.removeprefix("override ").removeprefix("optional ").strip("/") for key in keys]
    return sorted({name for name in names if "@" in name})


def top_level_keys(root: Path = CONFIG_DIR) -> list[str]:
    """List the dotted keys of the YAML files at the root of the folder, such as `budget.steps`."""
    found: set[str] = set()
    for node in _root_files(root):
        for key in node.keys() - {"defaults", "hydra"}:
            found |= set(_leaves(node[key], key))
    return sorted(found)


def option_names(group: str, root: Path = CONFIG_DIR) -> list[str]:
    """List the names of a group's options without opening their files; [] for no such group."""
    return sorted(path.stem for path in (root / group).glob("*.yaml"))


def options(group: str, root: Path = CONFIG_DIR) -> list[Option]:
    """List the options of a group; ValueError naming the groups if there is no such group."""
    found = [_read(path, group) for path in sorted((root / group).glob("*.yaml"))]
    if not found:
        raise ValueError(f"no config group {group!r} in {root}; allowed: {', '.join(groups(root))}")
    return found


def options_with(group: str, root: Path = CONFIG_DIR) -> dict[str, list[str]]:
    """Return the options of a group by the dotted keys that their own files have."""
    found: dict[str, list[str]] = {}
    for path in sorted((root / group).glob("*.yaml")):
        for key, value in (_yaml(path) or {}).items():
            if not (key.startswith("_") or key == "defaults"):
                for leaf in _leaves(value, str(key)):
                    if TARGET not in leaf:
                        found.setdefault(leaf, []).append(path.stem)
    return found


def _yaml(path: Path) -> Any:
    import yaml  # names are listed faster without it

    return yaml.safe_load(path.read_text(encoding="utf-8"))


def _root_files(root: Path) -> list[dict[str, Any]]:
    return [node for path in root.glob("*.yaml") if isinstance(node := _yaml(path), dict)]


def _read(path: Path, group: str) -> Option:
    commands, prose = [], []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        text = line.lstrip("#").strip()
        if not text.startswith("@package"):
            (commands if _COMMAND.match(text) else prose).append(text)
    details = "\n".join(prose).strip()
    first = _SENTENCE_END.split(details.split("\n\n")[0].replace("\n", " "))[0]
    command = commands[0].strip("`$ ") if commands else ""
    return Option(group, path.stem, path, command, first, details)


def _leaves(node: object, prefix: str) -> Iterator[str]:
    """Yield the dotted keys of a node, without those that are interpolated from elsewhere."""
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from _leaves(value, f"{prefix}.{key}")
    elif "${" not in str(node):
        yield prefix


def option_settings(group: str, name: object, key: str) -> Mapping[str, Any]:
    """Return what an option's file holds; ValueError naming the key if there is no such option."""
    there = option_names(group)
    if name not in there:
        raise ValueError(
            f"{key}.{OPTION}={name!r:.60} does not exist here: there are {', '.join(there)}"
        )
    path = CONFIG_DIR / group / f"{name}.yaml"
    return _settings(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=512)
def _settings(path: Path, changed: int) -> Mapping[str, Any]:
    """Read an option's file, with what it takes from other options of its group."""
    from omegaconf import OmegaConf

    del changed  # a key of the cache
    content: Any = OmegaConf.to_container(OmegaConf.load(path)) or {}
    found: dict[str, Any] = {}
    for name in content.pop("defaults", []):
        if isinstance(name, str) and name != "_self_":
            other = path.with_name(f"{name}.yaml")
            found |= _settings(other, other.stat().st_mtime_ns)
    return found | content


def settings_of(node: object, key: str) -> Mapping[str, Any]:
    """Return what the file of a node's option holds, including its class.

    `key` is the node's path in a run's config, such as `encoder_norm` or `observe.probe.tid`.
    Raises ValueError naming an option that does not exist.
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


def named(node: Mapping[str, Any], key: str, choices: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node that Hydra composed, with its option in place of its class.

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


_Kind = TypeVar("_Kind")


def instantiate(node: object, key: str, kind: type[_Kind], **live: Any) -> _Kind:
    """Build the object of a node, which must be a `kind`, and those of the nodes inside it.

    `key` is the node's path in the config, such as `norm` or `observe.probe.tid`; `live` are
    arguments that no config holds, such as a width. Nothing is built unless everything fits.
    """
    return cast("_Kind", _plan(node, key, kind, live, settings_of(node, key)).build(live))


def check(node: object, key: str, kind: type, live: Collection[str] = ()) -> None:
    """Raise ValueError where `instantiate` would refuse a node; `live` are names of arguments."""
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
        try:
            return self.target(**live, **values)
        except (TypeError, ValueError) as error:
            if self.target.__module__.startswith("normlab."):
                raise
            text = ", ".join(f"{name}={value!r}" for name, value in values.items())
            raise ValueError(  # torch does not name the key
                f"{self.key}: {self.target.__name__} refuses {text}: {error}"
            ) from error


def _plan(
    node: object, key: str, kind: type, live: Collection[str], settings: Mapping[str, Any]
) -> _Plan:
    """Check a node against its class, which `settings`, of the option's file, name."""
    assert isinstance(node, Mapping), "settings_of refuses anything else"
    target = _target(str(settings.get(TARGET)), key, kind)
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


def _target(name: str, key: str, kind: type) -> type:
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


def _value(value: Any, hint: Any, key: str, settings: Any) -> Any:
    """Return a plan for a node, or the value if it fits the annotation."""
    if isinstance(value, Mapping):
        own = settings_of(value, key) if OPTION in value or TARGET in value else settings
        if isinstance(own, Mapping) and TARGET in own:
            kinds = [kind for kind in _choices(hint) if inspect.isclass(kind)]
            if kinds := [kind for kind in kinds if kind not in _PLAIN]:
                return _plan(value, key, kinds[0], (), own)
            raise ValueError(f"{key} takes a value, not an option: allowed is {_say(hint)}")
    if not any(_fits(value, choice) for choice in _choices(hint)):
        raise ValueError(f"{key}={value!r} does not fit: allowed is {_say(hint)}")
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value) if float in _choices(hint) and int not in _choices(hint) else value
    return value


def _choices(hint: Any) -> tuple[Any, ...]:
    """Return the types of a union, or the one type that an annotation is."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if hint in (float, int):
        numbers = (int, float) if hint is float else int
        return isinstance(value, numbers) and not isinstance(value, bool)
    if hint in _PLAIN or (inspect.isclass(hint) and hint.__module__.startswith("normlab.")):
        return isinstance(value, hint)
    return True  # the target checks richer types itself


def _say(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return ", ".join(map(str, get_args(hint)))
    if len(_choices(hint)) > 1:
        return " or ".join(map(_say, _choices(hint)))
    return "null" if hint is type(None) else getattr(hint, "__name__", str(hint))
