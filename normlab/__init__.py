"""normlab: what does normalization do in a Transformer?

`dir(normlab)` lists the interface, and `docs/howto/python.md` shows how to use it. `import normlab`
does not load torch, because each name is imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from normlab.openmp import wait_passively

if TYPE_CHECKING:
    from normlab.any_model.inspect import inspect as inspect
    from normlab.any_model.surgery.fold import fold_norms as fold_norms
    from normlab.any_model.surgery.swap import swap as swap
    from normlab.config.compose import compose as compose
    from normlab.errors import UserError as UserError
    from normlab.inspection.explain.explain import explain as explain
    from normlab.inspection.model.findings import inspect_config as inspect_config
    from normlab.inspection.model.findings import inspect_run as inspect_run
    from normlab.norms.make import make_norm as make_norm
    from normlab.norms.tokens import Tokens as Tokens
    from normlab.notebook import load_records as load_records
    from normlab.training import train as train
    from normlab.training.loaded_run import load_run as load_run

_HOMES = {
    "UserError": "errors",
    "Tokens": "norms.tokens",
    "compose": "config.compose",
    "explain": "inspection.explain.explain",
    "fold_norms": "any_model.surgery.fold",
    "inspect": "any_model.inspect",
    "inspect_config": "inspection.model.findings",
    "inspect_run": "inspection.model.findings",
    "load_records": "notebook",
    "load_run": "training.loaded_run",
    "make_norm": "norms.make",
    "swap": "any_model.surgery.swap",
    "train": "training",
}

wait_passively()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'normlab' has no attribute {name!r}")
    return getattr(import_module(f"normlab.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_HOMES)
