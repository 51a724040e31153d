"""Which norms make sense in which placement, by the options that a run names. No torch."""

from collections.abc import Iterator, Mapping
from typing import Any

from normlab.sites import STACK_NORMS

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
