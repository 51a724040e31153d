"""Builds the parts of a run from its config: norms, task, model, optimizer and trainer."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from normlab.config.instantiation import builder_of, instantiate
from normlab.config.registry import OPTION
from normlab.config.schema import NORM_KEYS, SITES
from normlab.errors import UserError
from normlab.models.base import ModelArchitecture, stacks
from normlab.models.layers import initialize
from normlab.norms.base import Norm
from normlab.norms.model_norms import ModelNorms
from normlab.placements.admin import AdminResidual, profile
from normlab.placements.base import NormFactory, Norms, Placement
from normlab.probes.base import Probe, ProbeGroup
from normlab.records.record import DISTURBANCES
from normlab.tasks.base import Task
from normlab.training.checkpoint import Checkpoints
from normlab.training.evaluate import LOSS, Evaluator
from normlab.training.optimizer import build_optimizer, group_settings, own_keys
from normlab.training.runtime import Runtime, dropout_seed
from normlab.training.schedule import Schedule
from normlab.training.sinks import Sink
from normlab.training.trainer import Trainer

_GRAPHS = 64
"""The maximum number of compiled graphs per block. A block that needs more runs uncompiled. torch's
default is 8. Encoder and decoder, batches with and without padding, training and evaluation, and
each phase of the norms need different graphs.
"""


def check_nodes(config: Mapping[str, Any]) -> None:
    """Raise UserError if a node of a plain config could not be built. Nothing is built."""
    nodes: dict[str, tuple[Any, type, tuple[str, ...]]] = {
        "task": (config["task"], Task, ()),
        "model": (own_keys(config, "model"), ModelArchitecture, ()),
        "placement": (config["placement"], Placement, ("dropout",)),
        "optim": (own_keys(config, "optim"), torch.optim.Optimizer, ("params",)),
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
        builder_of(node, key, kind, live)
    group_settings(config["optim"])


def build_task(config: Mapping[str, Any]) -> Task:
    """Build the task of a plain config. Its data is read on first use."""
    return instantiate(config["task"], "task", Task)


def build_evaluator(config: Mapping[str, Any], task: Task, runtime: Runtime) -> Evaluator:
    """Build the evaluator of a plain config."""
    observe = config["observe"]
    return Evaluator(
        task,
        runtime,
        recalibration_batches=config["validate"]["recalibration_batches"],
        disturbances={name: observe[f"test_{name}"] for name in DISTURBANCES},
        test_seen=observe["test_seen"],
        one_batch=observe["debug"],
        limit=config["validate"].get("limit"),
    )


def build_trainer(
    config: Mapping[str, Any],
    task: Task,
    model: nn.Module,
    runtime: Runtime,
    checkpoints: Checkpoints,
    **others: Any,
) -> Trainer:
    """Build the trainer of a model, with all other parts that a plain config asks for.

    `others` are arguments of `Trainer` that no config holds, such as its sinks.
    """
    nodes = config["observe"]["probe"].items()
    probes = {name: instantiate(node, f"observe.probe.{name}", Probe) for name, node in nodes}
    return Trainer(
        config=config,
        task=task,
        model=model,
        runtime=runtime,
        optimizer=build_optimizer(config, model),
        schedule=instantiate(config["schedule"], "schedule", Schedule),
        evaluator=build_evaluator(config, task, runtime),
        norms=ModelNorms(model, freeze_statistics=config["freeze_statistics"]),
        probes=ProbeGroup(probes),
        checkpoints=checkpoints,
        **others,
    )


def check_scores(config: Mapping[str, Any], task: Task) -> None:
    """Raise UserError, before training, if a run needs a score that its task does not have."""
    targets = config["observe"]["targets"]
    targets = task.targets if targets is None else targets
    needed = [("validate.select_by", config["validate"]["select_by"])]
    needed += [("observe.targets", name) for name in targets]
    needed = [(key, name) for key, name in needed if name != LOSS]  # every task has it
    available = task.score_names() if needed else ()
    for key, name in needed:
        if available and name not in available:
            known = ", ".join(sorted(available))
            raise UserError(f"{key}={name} is not a score of this task; choose from {known}")


def build_model(config: Mapping[str, Any], task: Task) -> nn.Module:
    """Build the model of a plain config, initialized with its seed.

    Raises:
        UserError: the model does not fit the task, or the config sets a norm at a path that the
            model does not have.
    """
    sizes = instantiate(own_keys(config, "model"), "model", ModelArchitecture)
    placement = instantiate(config["placement"], "placement", Placement, dropout=sizes.dropout)
    norms = _norms(config)
    model = sizes.build(task.spec(), placement, norms)
    _check_used(config, norms)
    initialize(model, config["seed"])
    return model


def _norms(config: Mapping[str, Any]) -> Norms:
    """Return a config's norms with their rules: first the norm keys, then the rules of `sites`."""
    keys = [(rule, config[key], key) for key, rule in SITES.items() if config.get(key)]
    rules: Mapping[str, Any] = config.get("sites") or {}
    further = [(pattern, node, f"sites.{pattern}") for pattern, node in rules.items()]

    def factory(node: Mapping[str, Any], key: str) -> NormFactory:
        return lambda dim: instantiate(node, key, Norm, dim=dim)

    return Norms((rule, factory(node, key)) for rule, node, key in [*keys, *further])


def _check_used(config: Mapping[str, Any], norms: Norms) -> None:
    """Raise UserError if the config sets a norm at a path that the model does not have."""
    unused = norms.unused()
    for pattern in config.get("sites") or {}:
        if pattern in unused:
            raise UserError(
                f"sites: {pattern} matches no norm of this model; choose from {norms.listed()}"
            )
    for key, rule in SITES.items():
        option = (config.get(key) or {}).get(OPTION)
        if rule in unused and key != "norm" and option not in (None, "none"):
            raise UserError(
                f"norm@{key} sets a norm that this model does not have; remove norm@{key}"
            )


def calibrate_model(
    config: Mapping[str, Any], model: nn.Module, task: Task, runtime: Runtime
) -> None:
    """Initialize the placement from one training batch before step 1, if it needs that (Admin).

    The batch comes from a separate iterator, so training still starts at its first batch. All
    processes must call this before the model is compiled, and never in a resumed run.
    """
    if any(isinstance(module, AdminResidual) for module in model.modules()):
        seed = config["seed"]
        batch = next(iter(task.calibration_batches(runtime.world, seed))).to(runtime.device)
        with runtime.autocast():
            profile(
                model,
                lambda: task.losses(model, batch),
                seed=dropout_seed(seed, runtime.world.rank),
            )


def make_fast(model: nn.Module) -> None:
    """Compile the blocks of a model, for all input sizes (`observe.fast`).

    Results differ only by rounding and by dropout's random draws. Raises UserError if the model has
    no blocks.
    """
    blocks = [block for stack in stacks(model).values() for block in stack.blocks]
    if not blocks:
        raise UserError(
            f"observe.fast=true: {type(model).__name__} has no blocks to compile; omit observe.fast"
        )
    from torch._dynamo import config  # importing it takes a second

    config.recompile_limit = _GRAPHS
    for block in blocks:
        block.compile(dynamic=True)
