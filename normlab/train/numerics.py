"""The version of normlab's numbers, which says whether two runs were computed by the same formulas.

The losses of short runs lie in `tests/golden`. Raise `NUMERICS` when, and only when, a value there
changes by more than a relative 1e-6 in float64; runs of different numerics are never paired. A norm
of a user's own has no golden losses: its file is hashed instead.
"""

import hashlib
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from normlab.config.registry import OPTION, TARGET, option_settings

NUMERICS = 1
GOLDEN_NORMS = frozenset(
    {
        *("ada", "bn", "bn_noisy", "bn_position", "bn_rms", "bn_sample", "brn", "derf", "dyt"),
        *("global", "gn", "gn_sample", "in", "ln", "mabn", "none", "pn", "pn_v", "prepbn"),
        *("prms", "rbn", "repbn", "rms", "scale", "seqn", "un"),
    }
)
"""The norms whose losses are golden: a test compares them with the file."""
_DIGITS = 10


def own_norms(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the norms of a run that are not normlab's own, each with the hash of its file."""
    names = {name for name in _norms(config) if name not in GOLDEN_NORMS}
    return {name: _hash_of(name) for name in sorted(names)}


def _norms(config: Mapping[str, Any]) -> Iterator[str]:
    sites = {key: node for key, node in config.items() if key == "norm" or key.endswith("_norm")}
    for node in (*sites.values(), *(config.get("sites") or {}).values()):
        if isinstance(node, Mapping) and OPTION in node:
            yield str(node[OPTION])


def _hash_of(option: str) -> str:
    module = str(option_settings("norm", option, "norm")[TARGET]).rpartition(".")[0]
    spec = find_spec(module)
    assert spec is not None and spec.origin is not None, f"{module} has been imported"
    return hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()[:_DIGITS]
