"""What may be typed for longer settings: an experiment, a file of settings, a short name.

`experiment=bert_bn` stands for the settings in `configs/experiment/bert_bn.yaml`, and `my.yaml` for
those in this file; `lr=1e-3` for `optim.lr=1e-3`, `norm=batchnorm` for `norm=bn`. `wandb=true` adds
a sink, and `wandb.project=mine` sets `observe.sink.wandb.project` and adds it too.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from normlab.config.registry import CONFIG_DIR, option_names, read_yaml

EXPERIMENT = "experiment"
KEYS = {
    **{"lr": "optim.lr", "steps": "budget.steps", "epochs": "budget.epochs"},
    **{"name": "observe.name", "tags": "observe.tags"},
}
TRACKERS = ("wandb", "tensorboard")
NORMS = {"layer": "ln", "batch": "bn", "group": "gn", "instance": "in", "rms": "rms", "power": "pn"}
_PLAIN = re.compile(r"[A-Za-z0-9_./+:@%-]+")  # needs no quotes in Hydra's grammar


def written_out(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with experiments, files and short names replaced by full settings.

    Settings of files come first, without those that are also typed. Raises ValueError for an
    unknown experiment, or a file that is not a mapping of settings.
    """
    files: list[str] = []
    typed: list[str] = []
    for text in arguments:
        key, equals, value = text.partition("=")
        if key == EXPERIMENT:
            files += settings_of_file(_experiment(value))
        elif not equals and text.endswith((".yaml", ".yml")):
            files += settings_of_file(Path(text))
        else:
            typed.append(_in_full(key, value) if equals else text)
    given = set(map(_key, typed))
    return _with_trackers([*(text for text in files if _key(text) not in given), *typed])


def _key(text: str) -> str:
    return text.partition("=")[0]


def _with_trackers(arguments: Sequence[str]) -> list[str]:
    """Replace `wandb=true` and `wandb.KEY=VALUE` by the sink and its settings."""
    found: list[str] = []
    wanted: dict[str, bool] = {}
    for text in arguments:
        name, dot, _ = _key(text).partition(".")
        if name not in TRACKERS:
            found.append(text)
        elif dot:
            wanted.setdefault(name, True)
            found.append(f"observe.sink.{text}")
        else:
            wanted[name] = text != f"{name}=false"
    if any(wanted.values()) and "sink" not in map(_key, found):
        names = [name for name, on in wanted.items() if on]
        found.append(f"sink=[{','.join(['console', 'jsonl', *names])}]")
    return found


def _in_full(key: str, value: str) -> str:
    if key == "norm" or key.startswith("norm@"):
        value = ",".join(map(_norm, value.split(",")))
    return f"{KEYS.get(key, key)}={value}"


def _norm(name: str) -> str:
    word = re.sub("[-_]", "", name.lower())
    return NORMS.get(word.removesuffix("norm"), name) if word.endswith("norm") else name


def _experiment(name: str) -> Path:
    if name not in (there := option_names(EXPERIMENT)):
        raise ValueError(f"no experiment {name!r:.60}: there are {', '.join(there)}")
    return CONFIG_DIR / EXPERIMENT / f"{name}.yaml"


def settings_of_file(path: Path) -> list[str]:
    """Return the settings in a YAML file as `key=value`; ValueError if it has none."""
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    content = read_yaml(path)
    if not isinstance(content, Mapping) or "choices" in content:
        what = "the config of a run" if isinstance(content, Mapping) else "not a list of settings"
        raise ValueError(f"{path}: {what}; give key: value lines, as in configs/{EXPERIMENT}")
    found = [f"{key}={_value(value)}" for key, value in _flat(content, "")]
    return [_in_full(*text.split("=", 1)) for text in found]


def _flat(settings: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield each setting with its dotted key; `sites` keeps its mapping."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and f"{prefix}{key}" != "sites":
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _value(value: Any) -> str:
    """Return a value in Hydra's grammar."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_value, value)) + "]"
    text = str(value)
    return text if _PLAIN.fullmatch(text) else "'" + text.replace("'", "\\'") + "'"
