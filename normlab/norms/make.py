"""Builds a norm from its option in `configs/norm`."""

from typing import Any

from normlab.config import ranges
from normlab.config.registry import instantiate, option_names, option_settings
from normlab.config.suggest import of_option
from normlab.norms.base import Norm


def make_norm(option: str, dim: int, **values: Any) -> Norm:
    """Return the norm `option` of `configs/norm`; `values` override the option's settings.

    Raises ValueError for an unknown option (it lists them) or an invalid value (it names the key).
    """
    if option not in (there := option_names("norm")):
        near = of_option("norm", option, there)
        raise ValueError(f"no norm {option!r}: there are {', '.join(there)}.{near}")
    ranges.check({"norm": values})
    return instantiate({**option_settings("norm", option, "norm"), **values}, "norm", Norm, dim=dim)
