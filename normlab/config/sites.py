"""The places of norms that have a key of their own, and rules that reach any place by its path.

`norm` is the norm of every place, `norm@encoder_norm=bn` that of the encoder's places, and so on:
each key stands for a rule on paths (`SITES`). `sites={encoder.0.*:ln,*.ffn:bn}` gives further
rules; the last rule that matches a place decides. Paths are `encoder.0.self`, `decoder.1.cross`,
`encoder.0.ffn`, `decoder.final`. Some places have no norm unless the last word of a rule names
them: `encoder.embedding`, `encoder.0.ffn.inner` before the activation, `encoder.0.ffn.hidden` after
it, and in an attention the heads' `q`, `k` and `v`, the `mix` before the output projection and the
projection's `out` (`encoder.0.self.q`). A recurrent layer has `recurrent.0.input`, `hidden` and
`cell`. `*` stands for anything, dots included.

Rules that say what a key says become that key: `{*:bn,decoder.*:ln}` is `norm=bn
norm@decoder_norm=ln`, the same experiment under the same name.
"""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from normlab.config.registry import named, option_names, option_settings

if TYPE_CHECKING:
    from omegaconf import DictConfig


class SiteKey(NamedTuple):
    """A key of the config that gives some places their norm.

    Attributes:
        key: of the config; `norm@<key>` on the command line.
        rule: the pattern of paths that it stands for.
        default: the norm where the key is not given: the run's own (`norm`), or `none`.
        width: the size of the model that the norm is as wide as.
    """

    key: str
    rule: str
    default: Literal["norm", "none"] = "norm"
    width: str = "dim"


SITES = (
    SiteKey("norm", "*"),
    SiteKey("encoder_norm", "encoder.*"),
    SiteKey("decoder_norm", "decoder.*"),
    SiteKey("ffn_inner_norm", "*.inner", default="none", width="ffn_dim"),
    SiteKey("embedding_norm", "*.embedding", default="none"),
    SiteKey("input_norm", "recurrent.*.input"),
    SiteKey("hidden_norm", "recurrent.*.hidden"),
    SiteKey("cell_norm", "recurrent.*.cell"),
)
"""All keys that name a norm, in the order of the config."""
NORM_KEYS = tuple(site.key for site in SITES)
STACK_NORMS = ("encoder_norm", "decoder_norm")
STEP_NORMS = ("input_norm", "hidden_norm", "cell_norm")
"""The keys of a recurrent layer's norms."""

_KEYS = {site.rule: site.key for site in SITES}
_FOLLOWING = tuple(site.key for site in SITES[1:] if site.default == "norm")
_PATTERN = re.compile(r"(\*|[a-z0-9_]+)(\.(\*|[a-z0-9_]+))*")
_NAMED = 4  # rules of a label
_EXAMPLE = "'sites={*.self:bn,encoder.0.*:ln}'"


def settle_sites(config: "DictConfig") -> None:
    """Replace the norms' names in `sites` by their nodes, and move rules that have a key to it.

    The label of the remaining rules becomes a choice, `sites`.

    Raises:
        ValueError: a rule is no path, or names a norm that does not exist.
    """
    from omegaconf import OmegaConf

    rules = OmegaConf.to_container(config.sites) if OmegaConf.is_config(config.sites) else {}
    if not isinstance(rules, dict) or (not rules and config.sites is not None):
        raise ValueError(f"sites={config.sites!r:.60} is no list of rules: give {_EXAMPLE}")
    choices: dict[str, Any] = dict(config.choices)
    nodes: dict[str, dict[str, Any]] = {}
    names: dict[str, str] = {}
    for pattern, value in rules.items():
        names[str(pattern)], nodes[str(pattern)] = _norm(str(pattern), value)
    for pattern in list(nodes):
        if pattern not in _KEYS:
            break
        for key in _FOLLOWING if pattern == "*" else ():
            config[key] = choices[key] = None
        config[_KEYS[pattern]], choices[_KEYS[pattern]] = nodes.pop(pattern), names.pop(pattern)
    config.sites = nodes or None
    if nodes:
        choices["sites"] = _label(names)
    config.choices = choices


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
    node = option_settings("norm", name, f"sites.{pattern}")
    return str(name), named(node, "norm", {"norm": name}) | given


def _label(names: Mapping[str, str]) -> str:
    """Name rules, the first of many: runs' folders are named so."""
    said = [f"{_word(rule)}_{name}" for rule, name in names.items()]
    rest = [f"{len(said) - _NAMED}_more"] if len(said) > _NAMED else []
    return "+".join(said[:_NAMED] + rest)


def _word(pattern: str) -> str:
    """Return a pattern as a part of a name: without its stars."""
    return ".".join(part for part in pattern.split(".") if part != "*")


_WITHOUT_NORMS = ("rezero",)
_WITH_HEAD_NORMS = ("hybrid",)
_WITH_NORMS = ("deepnorm", "admin", "b2t")  # their streams grow where no norm stands after the sum


def misplaced(choices: Mapping[str, Any], qk_norm: str | None) -> Iterator[str]:
    """Yield what is wrong with norms where the placement puts them.

    `choices` are the options of a run by group or site, `qk_norm` is that of its model, if any.
    """
    placement, run = choices.get("placement"), choices.get("norm")
    norms = {site: choices.get(site) or run for site in ("norm", *STACK_NORMS)}
    if placement in _WITHOUT_NORMS:
        for site, norm in norms.items():
            if norm not in (None, "none"):
                yield (
                    f"placement={placement} has no norms, and {_override(site)}={norm} asks for "
                    f"one: give {_override(site)}=none; a small gain beside norms is "
                    f"placement=layerscale"
                )
    if placement in _WITH_NORMS and "none" in norms.values():
        yield (
            f"placement={placement} makes the stream larger in each layer, and with norm=none "
            f"nothing brings it back: give norm=ln, or placement=pre or post, or placement=rezero"
        )
    embedding = choices.get("embedding_norm")
    if placement == "peri" and embedding not in (None, "none"):
        yield (
            f"placement=peri has a norm on the embedded tokens, and norm@embedding_norm={embedding}"
            " asks for a second: leave it out, or give placement=sandwich, which has none"
        )
    if placement in _WITH_HEAD_NORMS and qk_norm not in (None, "none"):
        yield (
            f"placement={placement} has norms of its own on queries and keys, and "
            f"model.qk_norm={qk_norm} asks for others: give model.qk_norm=none, or placement=pre"
        )


def _override(site: str) -> str:
    return site if site == "norm" else f"norm@{site}"
