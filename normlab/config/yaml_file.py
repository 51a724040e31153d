"""Reading a YAML file of the laboratory, by libyaml where it is there: about ten times as fast."""

from pathlib import Path
from typing import Any

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _WithoutAliases(yaml.SafeLoader):
    """Refuses aliases, of which a few lines can make a tree too large for any memory."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.YAMLError(f"line {mark.line + 1} has an alias, which no config has")
        return super().compose_node(parent, index)


def parse_config(text: str) -> Any:
    """Return the content of a run's config; YAMLError for what is not YAML, or has an alias."""
    return yaml.load(text, Loader=_WithoutAliases)


def read_yaml(path: Path) -> Any:
    """Return the content of a file; ValueError naming it where it is not YAML."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
