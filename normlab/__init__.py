"""normlab: what does normalization do in a Transformer?

Everything the command line does can be imported: `make_norm`, `Stream`, `compose`, `train`,
`load_run` and `records`. `import normlab` does not load torch; a name is imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from normlab.config.compose import compose
    from normlab.norms.base import Norm, Stream
    from normlab.notebook import Picture, Records, records
    from normlab.records.record import RunRecord
    from normlab.train.build import make_norm
    from normlab.train.loaded import LoadedRun, load_run
    from normlab.train.run import train


_HOMES = {
    "LoadedRun": "normlab.train.loaded",
    "load_run": "normlab.train.loaded",
    "make_norm": "normlab.train.build",
    "compose": "normlab.config.compose",
    "Norm": "normlab.norms.base",
    "Picture": "normlab.notebook",
    "Records": "normlab.notebook",
    "RunRecord": "normlab.records.record",
    "Stream": "normlab.norms.base",
}

__all__ = [
    "LoadedRun",
    "Norm",
    "Picture",
    "Records",
    "RunRecord",
    "Stream",
    "compose",
    "load_run",
    "make_norm",
    "records",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in ("records", "train"):  # packages that can be called
        return import_module(f"normlab.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'normlab' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
