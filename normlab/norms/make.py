"""Builds a norm from its option in `configs/norm`, for any model."""

import math
from typing import Any

from normlab.config.error_messages import check_option
from normlab.config.instantiation import instantiate
from normlab.config.registry import norm_name, option_settings
from normlab.config.run_config import check_values
from normlab.errors import UserError
from normlab.norms.base import Norm


def make_norm(option: str, dim: int, **values: Any) -> Norm:
    """Build the norm `option` of `configs/norm`, with its settings overridden by `values`.

    The norm maps `[B, P, D]` to the same shape, where D is `dim`, and can replace layer norm in any
    model. `norm(x)` treats all tokens as real, and `norm(x, Tokens(valid))` leaves padding out of
    the statistics.

    Raises UserError if `option` is unknown (the error lists the options) or if a value is invalid
    (the error names its key).
    """
    option = norm_name(option)
    check_option("norm", option)
    check_values({"norm": values})
    node = {**option_settings("norm", option, "norm"), **values}
    norm = instantiate(node, "norm", Norm, dim=dim)
    # In eval mode, torch's nn.TransformerEncoderLayer passes norm1.weight, .bias and .eps to a
    # kernel that computes layer norm, whatever norm1 is, unless a module has a hook.
    norm.register_forward_pre_hook(_check_input)
    if not hasattr(norm, "eps"):
        vars(norm)["eps"] = math.nan  # torch's encoder layer reads it
    return norm


def _check_input(norm: Norm, inputs: tuple[Any, ...]) -> None:
    """Raise UserError if the input is not `[B, P, D]`."""
    for x in inputs[:1]:
        if x.is_nested:
            raise UserError(
                "normlab's norms do not accept nested tensors; build nn.TransformerEncoder with "
                "enable_nested_tensor=False"
            )
        if x.ndim != 3 or x.shape[2] != norm.dim:
            raise UserError(
                f"a norm of width {norm.dim} expects [batch, position, {norm.dim}], but got "
                f"{list(x.shape)}; reshape the input, for example to x[None] for one sequence [P, "
                "D] or x.flatten(1, 2) for images [B, H, W, D]"
            )
