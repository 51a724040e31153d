"""The sites in a model that probes measure, and the data of a module's call.

The name of a site is the `path` of a norm, residual connection, sub-layer or attention, as in the
config, such as `encoder.0.self`. If the module has no path, it is the module's name in the model.
Parameters are grouped by layer, such as `encoder.0`, and by kind, such as `attention`.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from jaxtyping import Bool, Float
from torch import Tensor, nn

from normlab.models.attention import AttentionCore
from normlab.models.base import sublayer
from normlab.norms.base import Norm
from normlab.norms.tokens import Tokens
from normlab.placements.base import Residual

_CLASSES = {"norm": Norm, "residual": Residual, "attention": AttentionCore}
ABSENT = {
    "norm": "the model has no norms",
    "residual": "the model has no residual sub-layers",
    "attention": "the model has no attention",
    "sublayer": "the model declares no sub-layers",
    "recurrent norm": "the model has no norms inside recurrent layers",
}
"""Why a probe does not apply to a model, keyed by the first kind of site that it measures."""

M = TypeVar("M", bound=nn.Module)


class Site(NamedTuple):
    """A module that a probe measures, and the kind of the site (see `sites`)."""

    kind: str
    module: nn.Module


@dataclass
class ModuleCall:
    """One call of a module, or all calls of a recurrent norm for one batch, joined along positions.

    `args` are the module's arguments, and `y` is its output. `grad` is dL/dy, which is set only for
    probes that wait for the backward pass.
    """

    site: str
    module: nn.Module
    args: tuple[Any, ...]
    y: Any
    grad: Tensor | None = None

    @property
    def input(self) -> tuple[Float[Tensor, "B P D"], Bool[Tensor, "B P"]]:
        """The values of the module's input, and the mask of the real tokens."""
        return real_values(self.args[0], self.args)

    @property
    def output(self) -> tuple[Float[Tensor, "B P D"], Bool[Tensor, "B P"]]:
        """The values of the module's output, and the mask of the real tokens."""
        return real_values(self.y, self.args)


def sites(model: nn.Module, kinds: Collection[str]) -> dict[str, Site]:
    """Return the sites of these kinds, keyed by name, in the order of the model.

    The kinds are "norm", "residual", "attention" (the product of queries and keys), "recurrent
    norm" (a norm inside a recurrent layer) and "sublayer". Sites of the last kind are returned with
    a more specific kind: "attention", "feed_forward", "convolution" or "recurrent".
    """
    by_name: dict[str, Site] = {}
    inside = recurrent_norms(model)
    for name, module in model.named_modules():
        for kind in kinds:
            if kind == "sublayer":
                name_of_kind = sublayer(module)
            elif kind == "recurrent norm":
                name_of_kind = kind if module in inside else None
            else:
                name_of_kind = kind if isinstance(module, _CLASSES[kind]) else None
            if name_of_kind is not None:
                by_name[site_name(name, module)] = Site(name_of_kind, module)
    return by_name


def site_name(name: str, module: nn.Module) -> str:
    """Return the name of a module's site: its `path` or, without one, its name in the model."""
    return getattr(module, "path", "") or name


def modules_by_site(model: nn.Module, kind: type[M]) -> dict[str, M]:
    """Return the modules of a class, keyed by the names of their sites, in the model's order."""
    return {site_name(name, m): m for name, m in model.named_modules() if isinstance(m, kind)}


def recurrent_norms(model: nn.Module) -> set[nn.Module]:
    """Return the norms inside recurrent layers, including `NoNorm`."""
    layers = [module for module in model.modules() if sublayer(module) == "recurrent"]
    return {norm for layer in layers for norm in layer.modules() if isinstance(norm, Norm)}


def real_values(
    x: Tensor | tuple[Any, ...], args: tuple[Any, ...]
) -> tuple[Float[Tensor, "B P D"], Bool[Tensor, "B P"]]:
    """Return a module's input or output `x` as `[B, P, D]`, and a mask of the real positions.

    `args` are the module's arguments: images `[B, C, H, W]` for a convolution, and otherwise
    `[B, P, D]` and its `Tokens`. A recurrent layer returns a tuple of values and states.
    """
    values: Tensor = x[0] if isinstance(x, tuple) else x
    if len(args) == 1:
        values = values.flatten(2).transpose(1, 2)
    tokens = args[1] if len(args) > 1 else Tokens()
    return values, tokens.real(values)


def layer(parameter: str) -> str:
    """Return the layer, such as `encoder.0`, of the parameter with this name."""
    *module, _ = [part.removesuffix("_norm") for part in parameter.split(".") if part != "layers"]
    numbers = [index for index, part in enumerate(module) if part.isdecimal()]
    return ".".join(module[: numbers[0] + 1 if numbers else 2])


def sublayer_kinds(model: nn.Module) -> dict[str, str]:
    """Return the kind of each parameter, keyed by the parameter's name.

    Kinds are "norm", "embedding", the kinds of sub-layers ("attention", "feed_forward",
    "convolution" and "recurrent") and "other".
    """
    kinds: dict[str, str] = {}
    parts: dict[str, str] = {}
    for name, module in model.named_modules():
        kind = "norm" if isinstance(module, Norm) else sublayer(module)
        kind = "embedding" if isinstance(module, nn.Embedding) else kind
        parts[name] = kind or parts.get(name.rpartition(".")[0], "other")
        for parameter, _ in module.named_parameters(prefix=name, recurse=False):
            kinds[parameter] = parts[name]
    return kinds
