"""What do small batches cost a norm that takes its statistics from the batch? Claims 9 and 10.

Updates stay those of the usual run. Only the sequences that statistics are taken over are fewer: by
`norm.ghost` where the norm has it, else by smaller micro-batches that are accumulated.
"""

from collections.abc import Mapping
from typing import Any

from normlab.card.finding import Finding
from normlab.card.rerun import against_usual
from normlab.card.subject import Examined
from normlab.config import to_dict
from normlab.instantiate import instantiate
from normlab.norms.base import Norm
from normlab.sites import NORM_KEYS

QUESTION = "What does it lose with statistics of four sequences instead of the whole batch?"
SEQUENCES = 4


def examine(examined: Examined) -> Finding:
    """Train the translation run again with small statistics batches."""
    config = to_dict(examined.config("translation"))
    sites = _batch_sites(config)
    if not sites:
        return Finding.none(QUESTION, "the norm takes no statistics from the batch")
    if all("ghost" in config[site] for site in sites):
        changed = [f"{site}.ghost={SEQUENCES}" for site in sites]
    else:
        count = config["batch_size"] // SEQUENCES
        changed = [f"batch_size={SEQUENCES}", f"accumulate={count}"]
    usual = f"of {config['batch_size']}"
    other = f"of {SEQUENCES}"
    return against_usual(examined, QUESTION, usual, other, changed, f"batch {other}")


def _batch_sites(config: Mapping[str, Any]) -> list[str]:
    """Return the sites of the config whose norms pool over the batch."""
    model = config["model"]
    found = []
    for site in NORM_KEYS:
        if config.get(site) is not None:
            dim = model["ffn_dim" if site == "ffn_inner_norm" else "dim"]
            if "batch" in instantiate(config[site], site, Norm, dim=dim).pools:
                found.append(site)
    return found
