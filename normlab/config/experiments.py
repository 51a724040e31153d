"""Experiments: files with the settings of a run, in `configs/experiment` or written by a user.

They are Hydra configs: a defaults list with `override /norm: bn`, then values. An experiment is
chosen by its name, or by its file (`my.yaml`), which may be anywhere. Nothing here imports torch or
Hydra.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from normlab.config.folders import INCLUDE, groups
from normlab.config.registry import paths, read_option
from normlab.config.schema import SHORT, leaves, text_keys
from normlab.config.yaml_files import read_yaml
from normlab.errors import UserError

EXPERIMENT = "experiment"
_LISTS = ("tags", SHORT["tags"])  # keys whose value is a list of text
_TRACKER = "observe.sink.wandb."


def is_file(text: str) -> bool:
    """Return whether an argument names a file of settings."""
    return "=" not in text and text.endswith((".yaml", ".yml"))


def names_in(value: str) -> list[str]:
    """Return the experiments in the value of `experiment=`: names, and paths of files."""
    names = [name.strip().strip("'\"") for name in value.strip("[]").split(",")]
    return [name for name in names if name not in ("", "null")]


def chosen_file(text: str) -> str:
    """Return the absolute path of a file of settings; UserError if it is not such a file."""
    path = Path(text)
    if not path.is_file():
        raise UserError(f"{path}: {'a folder, not a file' if path.is_dir() else 'no such file'}")
    settings_in(path, read_option(path))
    return str(path.absolute())


def settings_in(path: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return an experiment's content, with text as it is written; UserError if not an experiment.

    YAML reads `name: 1.10` as a number, and would drop its last digit.
    """
    if not content:
        raise UserError(
            f"{path}: no settings; write one `key: value` per line, as in configs/{EXPERIMENT}"
        )
    if "choices" in content:
        raise UserError(f"{path}: the config of a whole run, not the settings of an experiment")
    if INCLUDE in content:
        raise UserError(f"{path}: type {INCLUDE}=FOLDER: a file cannot name code that is to run")
    for key, value in content.items():
        if (key in groups() or key.startswith("norm@")) and not isinstance(value, Mapping):
            raise UserError(f"{path}: {key}: {value}: write - override /{key}: {value} in defaults")
        if "." in key:
            advice = f"write {': {'.join(key.split('.'))}: {value}{'}' * key.count('.')}"
            raise UserError(f"{path}: {key}: {value}: {advice}")
    keys = dict(leaves(content))
    if twice := [
        f"{key} and {full}" for key, full in SHORT.items() if key in keys and full in keys
    ]:
        raise UserError(f"{path}: {twice[0]} are the same key: keep one")
    return _texts(content, read_yaml(path, as_text=True), "")


def _texts(content: Mapping[str, Any], text: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the content, with the file's own text for each key whose value is text."""
    settings: dict[str, Any] = {}
    for name, value in content.items():
        key, written = f"{prefix}{name}", text[str(name)]
        is_text = key in text_keys() or key in _LISTS or key.startswith(_TRACKER)
        if isinstance(value, Mapping):
            settings[name] = _texts(value, written, f"{key}.")
        elif is_text and value is not None:
            settings[name] = [written] if key in _LISTS and isinstance(written, str) else written
        else:
            settings[name] = value
    return settings


def settings_of(names: Sequence[str]) -> dict[str, Any]:
    """Return the values that experiments set or inherit, by dotted key.

    The keys are in the order in which they are set last.
    """
    settings: dict[str, Any] = {}
    for key, value in chain.from_iterable(map(_settings, names)):
        settings.pop(key, None)
        settings[key] = value
    return settings


def _settings(name: str) -> Iterator[tuple[str, Any]]:
    path = paths(EXPERIMENT).get(name, Path(name))
    content = read_option(path)
    for base in content.get("defaults", []):
        if isinstance(base, str) and base != "_self_" and base in paths(EXPERIMENT):
            yield from _settings(base)
    yield from leaves({key: value for key, value in content.items() if key != "defaults"})
