"""normlab: what does normalization do in a Transformer?

Everything the command line does can be imported: `make_norm`, `Stream`, `compose`, `train`,
`load_run` and `load_records`. `import normlab` does not load torch; a name is imported on first
use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from normlab.config.compose import compose as compose
    from normlab.norms.base import Norm as Norm
    from normlab.norms.base import Stream as Stream
    from normlab.norms.make import make_norm as make_norm
    from normlab.notebook import load_records as load_records
    from normlab.train.loaded import load_run as load_run
    from normlab.train.run import train as train

_HOMES = {
    "Norm": "norms.base",
    "Stream": "norms.base",
    "compose": "config.compose",
    "load_records": "notebook",
    "load_run": "train.loaded",
    "make_norm": "norms.make",
}


def __getattr__(name: str) -> Any:
    if name == "train":  # a package that can be called
        return import_module("normlab.train")
    if name not in _HOMES:
        raise AttributeError(f"module 'normlab' has no attribute {name!r}")
    return getattr(import_module(f"normlab.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*_HOMES, "train"])
