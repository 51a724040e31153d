"""Decides what the norms of a run are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_ENDS = ("encoder_norm", "decoder_norm")


def norm_label(choices: Mapping[str, Any]) -> str:
    """Name the norms of a model by their sites: `bn`, `bn+ln` (encoder+decoder), `ln+ffn_inner_bn`.

    A site without a choice of its own has the norm of the model; extra sites follow by name. `-` is
    for a config without any.
    """
    norm = choices.get("norm")
    ends = [choices.get(site) or norm for site in _ENDS]
    sites = sorted(key for key in choices if key.endswith("_norm") and key not in _ENDS)
    extra = [
        f"{site.removesuffix('_norm')}_{choices[site]}"
        for site in sites
        if choices[site] not in (None, "none")
    ]
    parts = [part for part in [*dict.fromkeys(ends), *extra] if part is not None]
    return "+".join(str(part) for part in parts) or "-"
