"""Builds the parts of a run from its config: norm, task, model, optimizer, trainer."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args

import msgspec
import torch
from torch import nn

from normlab.config.registry import OPTION, check, instantiate
from normlab.config.schema import NORM_KEYS, SITES
from normlab.errors import UserError
from normlab.models.base import ModelArchitecture, stacks
from normlab.models.layers import initialize
from normlab.norms.base import Norm
from normlab.norms.model_norms import ModelNorms
from normlab.placements.admin import needs_profile, profile
from normlab.placements.base import NormFactory, Norms, Placement
from normlab.probes.base import Probe, ProbeGroup
from normlab.tasks.base import Task
from normlab.train.checkpoint import Checkpoints
from normlab.train.evaluate import Evaluator
from normlab.train.loop import Trainer
from normlab.train.runtime import Runtime
from normlab.train.schedule import Schedule
from normlab.train.sinks import Sink, SinkGroup

Kind = Literal["norm", "bias", "embedding", "other"]
Setting = Literal["rate", "weight_decay"]


def check_nodes(config: Mapping[str, Any]) -> None:
    """Raise UserError if a node of a plain config cannot be built; builds nothing."""
    nodes: dict[str, tuple[Any, type, tuple[str, ...]]] = {
        "task": (config["task"], Task, ()),
        "model": (_own(config, "model"), ModelArchitecture, ()),
        "placement": (config["placement"], Placement, ("dropout",)),
        "optim": (_own(config, "optim"), torch.optim.Optimizer, ("params",)),
        "schedule": (config["schedule"], Schedule, ()),
    }
    nodes |= {
        site: (config[site], Norm, ("dim",)) for site in NORM_KEYS if config.get(site) is not None
    }
    rules: Mapping[str, Any] = config.get("sites") or {}
    nodes |= {f"sites.{pattern}": (node, Norm, ("dim",)) for pattern, node in rules.items()}
    observe = config["observe"]
    nodes |= {f"observe.probe.{name}": (n, Probe, ()) for name, n in observe["probe"].items()}
    nodes |= {f"observe.sink.{name}": (n, Sink, ()) for name, n in observe["sink"].items()}
    for key, (node, kind, live) in nodes.items():
        check(node, key, kind, live)
    group_settings(config["optim"])


def build_task(config: Mapping[str, Any]) -> Task:
    """Build the task of a plain config; its data is read on first use."""
    return instantiate(config["task"], "task", Task)


def build_evaluator(config: Mapping[str, Any], task: Task, runtime: Runtime) -> Evaluator:
    """Build the evaluator of a plain config."""
    return Evaluator(
        task,
        runtime,
        recalibration_batches=config["validate"]["recalibration_batches"],
        noise=[float(value) for value in config["observe"]["test_noise"]],
        test_seen=config["observe"]["test_seen"],
        one_batch=config["observe"]["debug"],
        limit=config["validate"].get("limit"),
    )


def build_trainer(
    config: Mapping[str, Any],
    task: Task,
    model: nn.Module,
    runtime: Runtime,
    *,
    checkpoints: Checkpoints,
    sinks: SinkGroup | None = None,
    norms: ModelNorms | None = None,
    stamp: Mapping[str, Any] | None = None,
) -> Trainer:
    """Build the trainer of a plain config; `stamp` is written into its checkpoints."""
    nodes = config["observe"]["probe"].items()
    probes = {name: instantiate(node, f"observe.probe.{name}", Probe) for name, node in nodes}
    return Trainer(
        config,
        task,
        model,
        runtime,
        optimizer=build_optimizer(config, model),
        schedule=instantiate(config["schedule"], "schedule", Schedule),
        evaluator=build_evaluator(config, task, runtime),
        norms=norms or ModelNorms(model),
        probes=ProbeGroup(probes),
        sinks=sinks or SinkGroup({}),
        checkpoints=checkpoints,
        stamp=stamp or {},
    )


def check_scores(config: Mapping[str, Any], task: Task) -> None:
    """Raise UserError, before training, if a run needs a score that its task does not have."""
    there, targets = task.score_names(), config["observe"]["targets"]
    named = [("observe.targets", name) for name in (task.targets if targets is None else targets)]
    for key, name in [("validate.select_by", config["validate"]["select_by"]), *named]:
        if there and name not in there:
            known = ", ".join(sorted(there))
            raise UserError(f"{key}={name} is not a score of this task; choose from {known}")


def build_model(config: Mapping[str, Any], task: Task) -> nn.Module:
    """Build the model of a plain config, initialized with its seed.

    Raises:
        UserError: the model does not fit the task, or has no place for one of the given norms.
    """
    sizes = instantiate(_own(config, "model"), "model", ModelArchitecture)
    placement = instantiate(config["placement"], "placement", Placement, dropout=sizes.dropout)
    norms = _norms(config)
    model = sizes.build(task.spec(), placement, norms)
    _check_used(config, norms)
    initialize(model, config["seed"])
    return model


def _norms(config: Mapping[str, Any]) -> Norms:
    """Return the norms of a config: first its norm keys, then the rules of `sites`."""
    keys = [(rule, config[key], key) for key, rule in SITES.items() if config.get(key)]
    rules: Mapping[str, Any] = config.get("sites") or {}
    further = [(pattern, node, f"sites.{pattern}") for pattern, node in rules.items()]

    def factory(node: Mapping[str, Any], key: str) -> NormFactory:
        return lambda dim: instantiate(node, key, Norm, dim=dim)

    return Norms((rule, factory(node, key)) for rule, node, key in [*keys, *further])


def _check_used(config: Mapping[str, Any], norms: Norms) -> None:
    """Raise UserError if a norm is given for a place that the model does not have."""
    unused = norms.unused()
    for pattern in config.get("sites") or {}:
        if pattern in unused:
            raise UserError(
                f"sites: {pattern} matches no place in this model; choose from {norms.listed()}"
            )
    for key, rule in SITES.items():
        option = (config.get(key) or {}).get(OPTION)
        if rule in unused and key != "norm" and option not in (None, "none"):
            raise UserError(f"norm@{key}: this model has no such place; leave it out")


def calibrate_model(
    config: Mapping[str, Any], model: nn.Module, task: Task, runtime: Runtime
) -> None:
    """Initialize the placement from one training batch before step 1, if it needs that (Admin).

    The batch comes from a separate stream, so the run's own stream still starts at its first
    batch. All processes must call this before the model is compiled, and never in a resumed run.
    """
    if needs_profile(model):
        seed = config["seed"]
        batch = next(iter(task.calibration_batches(runtime.world, seed))).to(runtime.device)
        with runtime.autocast():
            profile(
                model,
                lambda: task.losses(model, batch),
                seed=seed * 1_000_003 + runtime.world.rank,
            )


def build_optimizer(config: Mapping[str, Any], model: nn.Module) -> torch.optim.Optimizer:
    """Build the optimizer of a plain config over a model's parameters.

    `optim.groups` sets, per kind of parameter, the weight decay and a factor on the learning rate;
    BERT, for example, uses no weight decay for norms and biases. Kinds with equal settings share a
    parameter group, and kinds without settings are in the first one. Without the key there is a
    single group.
    """
    node, settings = _own(config, "optim"), group_settings(config["optim"])
    if not settings:
        return instantiate(node, "optim", torch.optim.Optimizer, params=model.parameters())
    groups: dict[tuple[tuple[str, float], ...], list[nn.Parameter]] = {(): []}
    for parameter, kind in optimizer_kinds(model):
        groups.setdefault(tuple(sorted(settings.get(kind, {}).items())), []).append(parameter)
    filled = [{"params": params, **dict(own)} for own, params in groups.items() if params]
    return instantiate(node, "optim", torch.optim.Optimizer, params=filled)


def group_settings(optim: Mapping[str, Any]) -> dict[Kind, dict[Setting, float]]:
    """Return the settings of `optim.groups` by kind; UserError if they are invalid."""
    try:
        return msgspec.convert(optim.get("groups") or {}, dict[Kind, dict[Setting, float]])
    except msgspec.ValidationError as error:
        raise UserError(
            f"optim.groups={optim['groups']!r:.60}: {error}; give settings "
            f"({', '.join(get_args(Setting))}) for kinds ({', '.join(get_args(Kind))}), such as "
            "'+optim.groups={norm: {weight_decay: 0, rate: 0.5}}'"
        ) from None


def optimizer_kinds(model: nn.Module) -> Iterator[tuple[nn.Parameter, Kind]]:
    """Yield each parameter of a model once, in the model's order, with its kind.

    All parameters of norms are `norm`, all other biases `bias`. Embeddings are `embedding`, also if
    the output layer shares them.
    """
    owners: dict[type[nn.Module], Kind] = {Norm: "norm", nn.Embedding: "embedding"}
    kinds: dict[int, Kind] = {
        id(parameter): kind
        for owner, kind in owners.items()
        for module in model.modules()
        if isinstance(module, owner)
        for parameter in module.parameters()
    }
    for name, parameter in model.named_parameters():
        kind: Kind = "bias" if name.endswith("bias") else "other"
        yield parameter, kinds.get(id(parameter), kind)


def make_fast(model: nn.Module) -> None:
    """Compile the blocks of a model, for all input sizes (`observe.fast`).

    Results differ only by rounding and dropout's random draws. UserError if there are no blocks.
    """
    blocks = [block for stack in stacks(model).values() for block in stack.blocks]
    if not blocks:
        raise UserError(
            f"observe.fast=true: {type(model).__name__} has no blocks to compile; leave it out"
        )
    for block in blocks:
        block.compile(dynamic=True)


def _own(config: Mapping[str, Any], key: str) -> Any:
    """Return a node without the keys that its class does not take.

    `model.depth` has already set the numbers of layers; `build_optimizer` reads `optim.groups`.
    """
    if not isinstance(node := config[key], dict):
        return node  # `check` raises for it
    return {name: value for name, value in node.items() if name not in ("depth", "groups")}
