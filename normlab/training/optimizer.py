"""The optimizer of a run: its parameter groups, and Muon combined with AdamW."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, get_args

import msgspec
import torch
from torch import nn

from normlab.config.instantiation import class_of, instantiate
from normlab.errors import UserError
from normlab.models.layers import OutputLayer, OutputTable
from normlab.norms.base import Norm

Kind = Literal["norm", "bias", "embedding", "output", "other"]
Group = Annotated[str, msgspec.Meta(pattern=rf"\.|^({'|'.join(get_args(Kind))})\Z")]
"""A kind of parameter, or a pattern for paths of norms such as `decoder.0.*` (as in `sites`)."""
Setting = Literal["rate", "weight_decay"]


class Muon(torch.optim.Optimizer):
    """Muon for the matrices of hidden layers, AdamW for all other parameters.

    The two are `torch.optim.Muon` and `torch.optim.AdamW`, with the same learning rate and weight
    decay. `adjust_lr_fn=match_rms_adamw` (Liu et al. 2025, arXiv 2502.16982) scales Muon's update
    to the size of AdamW's, so that a learning rate for AdamW works for both. `params` are
    parameter groups, of which Muon updates those with `hidden=True`.
    """

    def __init__(
        self,
        params: list[dict[str, Any]],
        *,
        lr: float,
        weight_decay: float,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_steps: int = 5,
        adjust_lr_fn: Literal["original", "match_rms_adamw"] = "match_rms_adamw",
        betas: tuple[float, float] = (0.9, 0.98),
        eps: float = 1e-8,
    ):
        hidden = [group for group in params if group["hidden"]]
        others = [group for group in params if not group["hidden"]]
        if not hidden:
            raise UserError(
                "optim=muon: this model has no matrices in hidden layers (convolutions are not "
                "matrices); use optim=adam or optim=sgd"
            )
        self.matrices = torch.optim.Muon(
            hidden,
            lr=lr,
            weight_decay=weight_decay,
            momentum=momentum,
            nesterov=nesterov,
            ns_steps=ns_steps,
            adjust_lr_fn=adjust_lr_fn,
        )
        self.others = torch.optim.AdamW(
            others, lr=lr, weight_decay=weight_decay, betas=betas, eps=eps, fused=True
        )
        super().__init__([*self.matrices.param_groups, *self.others.param_groups], {})
        self._share_groups()

    def _share_groups(self) -> None:
        """Share the groups of both optimizers, so that they see changes to the learning rate."""
        self.param_groups = [*self.matrices.param_groups, *self.others.param_groups]

    def step(self, closure: None = None) -> None:
        """Update all parameters once."""
        self.matrices.step()
        self.others.step()

    def state_dict(self) -> dict[str, Any]:
        return {"matrices": self.matrices.state_dict(), "others": self.others.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.matrices.load_state_dict(state_dict["matrices"])
        self.others.load_state_dict(state_dict["others"])
        self._share_groups()


def build_optimizer(config: Mapping[str, Any], model: nn.Module) -> torch.optim.Optimizer:
    """Build the optimizer of a plain config over a model's parameters.

    `optim.groups` sets, per kind of parameter, the weight decay and a factor on the learning rate.
    BERT, for example, uses no weight decay for norms and biases. Settings for a norm's path, such
    as `*.final`, override the settings for its kind, and the last match counts. Parameters with
    equal settings share a group, and parameters without settings are in the first group. Without
    `optim.groups`, there is a single group. With Muon, hidden matrices are in separate groups.
    """
    node, settings = own_keys(config, "optim"), group_settings(config["optim"])
    muon = issubclass(class_of(node, "optim", torch.optim.Optimizer), Muon)
    if not settings and not muon:
        return instantiate(node, "optim", torch.optim.Optimizer, params=model.parameters())
    groups: dict[tuple[tuple[str, float], ...], list[nn.Parameter]] = {(): []}
    at_sites = _settings_of_norms(settings, model)
    kinds = list(optimizer_kinds(model))
    _check_weights(settings, {kind for _, kind in kinds})
    for parameter, kind in kinds:
        options: dict[str, float] = {**settings.get(kind, {}), **at_sites.get(id(parameter), {})}
        if muon:
            options["hidden"] = kind == "other" and parameter.ndim == 2
        groups.setdefault(tuple(sorted(options.items())), []).append(parameter)
    filled = [{"params": params, **dict(options)} for options, params in groups.items() if params]
    return instantiate(node, "optim", torch.optim.Optimizer, params=filled)


def _check_weights(settings: Iterable[str], kinds: Collection[str]) -> None:
    """Raise UserError if settings are for embeddings or an output layer that do not exist.

    Settings for norms and biases may have no effect, so that models with and without norms can be
    compared under the same settings.
    """
    for kind in settings:
        if kind in ("embedding", "output") and kind not in kinds:
            tied = " (the weights of a tied output layer are of kind embedding)"
            raise UserError(
                f"optim.groups.{kind} has no effect: this model has no weights of this kind"
                f"{tied if kind == 'output' else ''}; omit it"
            )


def _settings_of_norms(
    settings: Mapping[str, Mapping[Setting, float]], model: nn.Module
) -> dict[int, dict[Setting, float]]:
    """Return the settings of each norm's parameters, keyed by the parameter's `id`.

    They are the `settings` whose key is a pattern that matches the norm's path.
    """
    rules = {key: values for key, values in settings.items() if "." in key}
    norms = [
        m for m in model.modules() if isinstance(m, Norm) and any(True for _ in m.parameters())
    ]
    for pattern in rules:
        if not any(fnmatchcase(norm.path, pattern) for norm in norms):
            paths = ", ".join(dict.fromkeys(norm.path for norm in norms if norm.path))
            raise UserError(
                f"optim.groups: no norm of this model matches {pattern}; "
                + (f"choose from {paths}" if paths else "it has no norms")
            )
    return {
        id(parameter): {
            key: value
            for pattern, values in rules.items()
            if fnmatchcase(norm.path, pattern)
            for key, value in values.items()
        }
        for norm in norms
        for parameter in norm.parameters()
    }


def group_settings(optim: Mapping[str, Any]) -> dict[str, dict[Setting, float]]:
    """Return the settings of `optim.groups` by kind or path, or raise UserError if invalid."""
    try:
        return msgspec.convert(optim.get("groups") or {}, dict[Group, dict[Setting, float]])
    except msgspec.ValidationError:
        raise UserError(
            f"optim.groups={optim['groups']!r:.60} is invalid; set "
            f"{' or '.join(get_args(Setting))} for kinds ({', '.join(get_args(Kind))}) or paths "
            "of norms, such as '+optim.groups={norm: {weight_decay: 0}, *.final: {rate: 0.5}}'"
        ) from None


def optimizer_kinds(model: nn.Module) -> Iterator[tuple[nn.Parameter, Kind]]:
    """Yield each parameter of a model once, in the model's order, with its kind.

    All parameters of norms are `norm`, all other biases `bias`. Embeddings are `embedding`, even if
    the output layer shares them, and the weights of a separate output layer are `output`.
    """
    owners: dict[type[nn.Module], Kind] = {
        OutputLayer: "output",
        Norm: "norm",
        nn.Embedding: "embedding",
        OutputTable: "output",  # also an embedding, so it comes later
    }
    kinds: dict[int, Kind] = {
        id(parameter): kind
        for owner, kind in owners.items()
        for module in model.modules()
        if isinstance(module, owner)
        for name, parameter in module.named_parameters()
        if owner is not OutputLayer or name != "bias"
    }
    for name, parameter in model.named_parameters():
        kind: Kind = "bias" if name.endswith("bias") else "other"
        yield parameter, kinds.get(id(parameter), kind)


def own_keys(config: Mapping[str, Any], key: str) -> Any:
    """Return a node without `depth` and `groups`, which no class accepts.

    `model.depth` has already set the numbers of layers, and `build_optimizer` reads `optim.groups`.
    """
    if not isinstance(node := config[key], dict):
        return node  # `builder_of` raises an error for it
    return {name: value for name, value in node.items() if name not in ("depth", "groups")}
