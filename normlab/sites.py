"""Sites: ordered rules that give norms to places of a model by their paths.

`sites={encoder.0.*:ln,*.ffn:bn}` replaces the norms at the places that a pattern matches; the last
rule that matches a place has it. Paths are `encoder.0.self`, `decoder.1.cross`, `encoder.0.ffn`,
`decoder.final`, and, where no norm stands unless a rule's last word names it, `encoder.embedding`,
`encoder.0.ffn.inner` before the activation and `encoder.0.ffn.hidden` after it, and in an attention
the heads' `q`, `k`, `v`, the `mix` before the output projection and what comes `out` of it
(`encoder.0.self.q`). A recurrence has `recurrent.0.input`, `hidden` and `cell`. `*` stands for
anything, dots too.

Rules that say what a key of its own says become that key: `{*:bn,decoder.*:ln}` is
`norm=bn norm@decoder_norm=ln`, the same experiment under the same name.
"""

import re
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from normlab.registry import CONFIG_DIR, option_names

SHORT = {
    "*": "norm",
    "encoder.*": "encoder_norm",
    "decoder.*": "decoder_norm",
    "*.inner": "ffn_inner_norm",
    "*.embedding": "embedding_norm",
    "*.input": "input_norm",
    "*.hidden": "hidden_norm",
    "*.cell": "cell_norm",
}
_FOLLOWING = ("encoder_norm", "decoder_norm", "input_norm", "hidden_norm", "cell_norm")
_PATTERN = re.compile(r"(\*|[a-z0-9_]+)(\.(\*|[a-z0-9_]+))*")
_NAMED = 4  # rules of a label
_EXAMPLE = "'sites={*.self:bn,encoder.0.*:ln}'"


def settle_sites(config: DictConfig) -> None:
    """Put the nodes of the norms in the place of their names, and rules into keys of their own.

    The label of the rules that are left becomes a choice, `sites`.

    Raises ValueError naming a rule that is none, or a norm that there is not.
    """
    rules = OmegaConf.to_container(config.sites) if OmegaConf.is_config(config.sites) else {}
    if not isinstance(rules, dict) or (not rules and config.sites is not None):
        raise ValueError(f"sites={config.sites!r:.60} is no list of rules: give {_EXAMPLE}")
    choices: dict[str, Any] = dict(config.choices)
    nodes: dict[str, dict[str, Any]] = {}
    names: dict[str, str] = {}
    for pattern, value in rules.items():
        names[str(pattern)], nodes[str(pattern)] = _norm(str(pattern), value)
    for pattern in list(nodes):
        if pattern not in SHORT:
            break
        for key in _FOLLOWING if pattern == "*" else ():
            config[key] = choices[key] = None
        config[SHORT[pattern]], choices[SHORT[pattern]] = nodes.pop(pattern), names.pop(pattern)
    config.sites = nodes or None
    if nodes:
        choices["sites"] = _label(names)
    config.choices = choices


def site_nodes(config: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the rules of a plain config, which may be of before there were any."""
    return dict(config.get("sites") or {})


def _norm(pattern: str, value: object) -> tuple[str, dict[str, Any]]:
    """Return the name and the node of the norm that a rule gives."""
    if not _PATTERN.fullmatch(pattern):
        raise ValueError(
            f"sites: {pattern!r:.60} is no path: give words and * between dots, as {_EXAMPLE}"
        )
    given = dict(value) if isinstance(value, Mapping) else {"norm": value}
    name = given.pop("norm", None)
    if name not in option_names("norm"):
        raise ValueError(
            f"sites: {pattern} has no norm {name!r:.60}: there are "
            f"{', '.join(option_names('norm'))}; values go beside it, as "
            f"'sites={{{pattern}:{{norm:bn,momentum:0.05}}}}'"
        )
    node = OmegaConf.to_container(OmegaConf.load(CONFIG_DIR / "norm" / f"{name}.yaml"))
    assert isinstance(node, dict)
    return str(name), {**{str(key): item for key, item in node.items()}, **given}


def _label(names: Mapping[str, str]) -> str:
    """Name rules, the first of many: runs' folders are named so."""
    said = [f"{_word(rule)}_{name}" for rule, name in names.items()]
    rest = [f"{len(said) - _NAMED}_more"] if len(said) > _NAMED else []
    return "+".join(said[:_NAMED] + rest)


def _word(pattern: str) -> str:
    """Return a pattern as a part of a name: without its stars."""
    return ".".join(part for part in pattern.split(".") if part != "*")
