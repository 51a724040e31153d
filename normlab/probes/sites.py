"""Names for the places of a model that probes report on: short, stable, in the order of depth.

A site is where a norm, a residual connection or an attention sits: `encoder.0.self` for
`encoder.layers.0.self_residual` and all that is in it. A layer is what parameters are grouped by
(`encoder.0`), a kind what they do (`attention`). Modules and parameters outside these conventions
keep their own names and the kind `other`.
"""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from jaxtyping import Bool, Float
from torch import Tensor, nn

from normlab.models.attention import CrossAttention, SelfAttention
from normlab.models.convolution import Convolution
from normlab.models.feed_forward import FeedForward
from normlab.norms.base import Norm, Stream

_SHORTER = (
    (re.compile(r"\.layers\."), "."),
    (re.compile(r"\.feed_forward\.(inner|hidden)_norm$"), r".ffn_\1"),
    (re.compile(r"_(residual|attention|norm)(\.|$)"), r"\2"),
    (re.compile(r"\.feed_forward$"), ".ffn"),
    (re.compile(r"\.(norm|core)$"), ""),
)
_LAYER = re.compile(r"^(.*?\.\d+)\.")

_SUBLAYERS: Mapping[type[nn.Module], str] = {
    SelfAttention: "attention",
    CrossAttention: "attention",
    FeedForward: "feed_forward",
    Convolution: "convolution",
}

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
    """Return kind and module of each attention, feed-forward layer and convolution by its name.

    `real_values` reads what they are called with, and what they return.
    """
    return {
        site(name): (_SUBLAYERS[type(module)], module)
        for name, module in model.named_modules()
        if type(module) in _SUBLAYERS
    }


def real_values(
    x: Tensor, arguments: tuple[Any, ...]
) -> tuple[Float[Tensor, "B P D"], Bool[Tensor, "B P"]]:
    """Return values of a sub-layer by position, and which are real, from its arguments.

    A convolution has pictures, `[B, C, H, W]`, and nothing else; the others `[B, P, D]` and the
    stream that this is of.
    """
    _, *rest = arguments
    if not rest:
        x = x.flatten(2).transpose(1, 2)
    stream = rest[0] if rest else Stream()
    return x, stream.real(x)


def layer(parameter: str) -> str:
    """Return the layer of a parameter: `encoder.0`, `decoder.final`, `encoder.embedding`."""
    module = parameter.rpartition(".")[0]
    found = _LAYER.match(site(module) + ".")
    return found[1] if found else ".".join(site(module).split(".")[:2])


def parameter_kinds(model: nn.Module) -> dict[str, str]:
    """Return what each parameter, by name, belongs to: attention, feed_forward, norm, embedding."""
    kinds = {}
    for module_name, module in model.named_modules():
        for name, _ in module.named_parameters(prefix=module_name, recurse=False):
            kinds[name] = _kind(module_name, module)
    return kinds


def _kind(name: str, module: nn.Module) -> str:
    if isinstance(module, Norm):
        return "norm"
    if isinstance(module, nn.Embedding):
        return "embedding"
    parts = name.split(".")
    if any(part.endswith("_attention") for part in parts):
        return "attention"
    return "feed_forward" if "feed_forward" in parts else "other"
