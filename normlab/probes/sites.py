"""Names for the places of a model that probes report on: short, stable, in the order of depth.

A site is where a norm, a residual connection or an attention sits: `encoder.0.self` for
`encoder.layers.0.self_residual` and all that is in it. A layer is what parameters are grouped by
(`encoder.0`), a kind what they do (`attention`). Modules and parameters outside these conventions
keep their own names and the kind `other`. What a sub-layer is, it says itself
(`normlab.models.base`).
"""

import re
from typing import Any, TypeVar

from jaxtyping import Bool, Float
from torch import Tensor, nn

from normlab.models.base import sublayer
from normlab.norms.base import Norm, Stream

_SHORTER = (
    (re.compile(r"\.layers\."), "."),
    (re.compile(r"\.feed_forward\.(inner|hidden)_norm$"), r".ffn_\1"),
    (re.compile(r"_(residual|attention|norm)(\.|$)"), r"\2"),
    (re.compile(r"\.feed_forward$"), ".ffn"),
    (re.compile(r"\.(norm|core)$"), ""),
)
_LAYER = re.compile(r"^(.*?\.\d+)\.")

NO_SUBLAYERS = "the model declares no sub-layers"

M = TypeVar("M", bound=nn.Module)


def site(name: str) -> str:
    """Return the short name of a module: `encoder.1.ffn` for `encoder.layers.1.ffn_residual`."""
    for pattern, shorter in _SHORTER:
        name = pattern.sub(shorter, name)
    return name


def sites(model: nn.Module, kind: type[M]) -> dict[str, M]:
    """Return the modules of a class by their short names, in the order of the model."""
    return {site(name): m for name, m in model.named_modules() if isinstance(m, kind)}


def sublayers(model: nn.Module) -> dict[str, tuple[str, nn.Module]]:
    """Return kind and module of each sub-layer by its short name, in the order of the model.

    `real_values` reads what they are called with, and what they return.
    """
    return {
        site(name): (kind, module)
        for name, module in model.named_modules()
        if (kind := sublayer(module)) is not None
    }


def recurrent_norms(model: nn.Module) -> dict[str, Norm]:
    """Return the norms of recurrent layers by their short names, identities among them."""
    return {
        site(f"{outer}.{inner}"): norm
        for outer, layer in model.named_modules()
        if sublayer(layer) == "recurrent"
        for inner, norm in layer.named_modules()
        if isinstance(norm, Norm)
    }


def real_values(
    x: Tensor | tuple[Any, ...], arguments: tuple[Any, ...]
) -> tuple[Float[Tensor, "B P D"], Bool[Tensor, "B P"]]:
    """Return values of a sub-layer by position, and which are real, from its arguments.

    A convolution has pictures, `[B, C, H, W]`, and nothing else; the others `[B, P, D]` and the
    stream that this is of. A recurrent layer returns its states behind the values.
    """
    values: Tensor = x[0] if isinstance(x, tuple) else x
    _, *rest = arguments
    if not rest:
        values = values.flatten(2).transpose(1, 2)
    stream = rest[0] if rest else Stream()
    return values, stream.real(values)


def layer(parameter: str) -> str:
    """Return the layer of a parameter: `encoder.0`, `decoder.final`, `encoder.embedding`."""
    module = parameter.rpartition(".")[0]
    found = _LAYER.match(site(module) + ".")
    return found[1] if found else ".".join(site(module).split(".")[:2])


def parameter_kinds(model: nn.Module) -> dict[str, str]:
    """Return the kind of each parameter by name: norm, embedding, or its sub-layer's; else other.

    Sub-layers are attention, feed_forward, convolution, recurrent.
    """
    kinds: dict[str, str] = {}
    parts: dict[str, str] = {}
    for name, module in model.named_modules():
        parts[name] = _kind(module) or parts.get(name.rpartition(".")[0], "other")
        for parameter, _ in module.named_parameters(prefix=name, recurse=False):
            kinds[parameter] = parts[name]
    return kinds


def _kind(module: nn.Module) -> str | None:
    """Return the kind of a module's own parameters; None where it is that of what it is part of."""
    if isinstance(module, Norm):
        return "norm"
    if isinstance(module, nn.Embedding):
        return "embedding"
    return sublayer(module)
