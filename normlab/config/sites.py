"""The rules in `sites`, which set different norms at some places of a model."""

import re
from collections.abc import Mapping

from omegaconf import DictConfig, OmegaConf

from normlab.config import registry
from normlab.config.error_messages import no_option
from normlab.config.registry import with_option_names
from normlab.errors import SettingError

_PATH = re.compile(r"(\*|[a-z0-9_]+)(\.(\*|[a-z0-9_]+))*")
_LABELED = 4  # maximum number of rules in a label
_RULES = "'sites={*.self:bn,encoder.0.*:ln}'"


def settle_sites(config: DictConfig) -> None:
    """Replace the norm names in `sites` with nodes, and add the rules' label to the choices."""
    rules = OmegaConf.to_container(config.sites) if OmegaConf.is_config(config.sites) else {}
    if not isinstance(rules, dict) or not rules:
        raise SettingError(
            f"sites={config.sites!r:.60} is not a mapping of rules; write it as in {_RULES}",
            "sites",
        )
    names: dict[str, str] = {}
    for pattern, value in rules.items():
        if not _PATH.fullmatch(str(pattern)):
            raise SettingError(
                f"sites: {pattern!r:.60} is not a path such as those in {_RULES}", "sites"
            )
        settings = dict(value) if isinstance(value, Mapping) else {"norm": value}
        name = str(settings.pop("norm", None))
        if name not in registry.option_names("norm"):
            raise SettingError(f"sites: {pattern}: {no_option('norm', name)}", "sites")
        if pattern == "*":
            raise SettingError(f"sites: * matches every place; set norm={name}", "sites")
        node = registry.option_settings("norm", name, f"sites.{pattern}")
        names[str(pattern)] = name
        rules[pattern] = with_option_names(node, "norm", {"norm": name}) | settings
    config.sites = rules
    config.choices = {**config.choices, "sites": _label(names)}


def _label(names: Mapping[str, str]) -> str:
    """Return a label for the rules in `sites`, for the name of the run."""
    words = {pattern: [part for part in pattern.split(".") if part != "*"] for pattern in names}
    labels = [f"{'.'.join(words[pattern])}_{name}" for pattern, name in names.items()]
    rest = [f"{len(labels) - _LABELED}_more"] if len(labels) > _LABELED else []
    return "+".join(labels[:_LABELED] + rest)
