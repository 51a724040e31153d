"""Files that a config is read from or names: YAML files, and the checkpoint to start from."""

import hashlib
from pathlib import Path
from typing import Any

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is about ten times as fast
START_FILE = "checkpoints/last.pt"
"""The file in a run's folder that another run starts from."""


class _WithoutAliases(yaml.SafeLoader):
    """Refuses aliases: a few lines with them can expand beyond any memory."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.YAMLError(f"line {mark.line + 1} has an alias, which no config has")
        return super().compose_node(parent, index)


def parse_config(text: str) -> Any:
    """Parse a run's `config.yaml`; YAMLError if it is not YAML or has an alias."""
    return yaml.load(text, Loader=_WithoutAliases)


def read_yaml(path: Path) -> Any:
    """Parse a YAML file; ValueError naming the file if it is not YAML."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: not YAML: {' '.join(str(error).split())}") from None


def start_from_node(folder: str) -> dict[str, str]:
    """Return the node `start_from` of a run folder; ValueError if it has no checkpoint."""
    path = Path(folder) / START_FILE
    if not path.is_file():
        raise ValueError(f"start_from={folder}: no folder of a trained run, which has {START_FILE}")
    return {"run_dir": folder, "sha256": sha256(path)}


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
