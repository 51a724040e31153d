"""Times norms alone and in a model, and folded batch norm: the timings that claims rest on.

All candidates are in memory at once and take turns. A translation model reads sentences; an image
model classifies images, and also takes training steps. A norm alone gets padded sequences, or for
images a dense batch with the input shape of the model's first norm.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor

from bench.alone import Candidate, Shape, alone, measure
from bench.common import (
    bench_config,
    bench_parser,
    bench_task,
    machine,
    require_positive,
    start_runtime,
    write_json,
)
from normlab.errors import UserError
from normlab.models.folding import fold
from normlab.norms.base import Norm
from normlab.norms.running import running_norms
from normlab.reports.legend import Note, print_legend
from normlab.tasks.images import ImageBatch, ImageClassification
from normlab.tasks.translation import Translation, TranslationBatch
from normlab.terminal import print_table
from normlab.training.build import build_model, make_fast
from normlab.training.runtime import Runtime
from normlab.training.speed import start

_EXAMPLES = """examples:
  python scripts/bench norms
  python scripts/bench norms --norms ln,bn,in model=base    alone at the width of the model
  python scripts/bench norms precision=fp32 --json norms.json
  python scripts/bench norms task=cifar10 model=vit --compiled \\
    --norms ln,bn,bn+norm@ffn_inner_norm=bn
  python scripts/bench norms task=cifar10 model=resnet8 --norms bn,ln,gn_sample,none

Without data_dir the images are noise of CIFAR-10's size.
"""
STEP = "model, training step"
COMPILED = ", compiled"
FOLDED = " folded"
"""Ends the name of a candidate whose norms are folded into the adjacent products."""
Configs = Mapping[str, Mapping[str, Any]]


def main(argv: list[str]) -> int:
    """Measure and print a table; with --json, also write a report."""
    parser = bench_parser("norms", "Time of norms, alone and in a model.", _EXAMPLES)
    parser.add_argument(
        "--norms",
        default="ln,rms,gn,bn,bn_position,global,in,none",
        help="such as ln,bn,rms; + adds settings, as in bn+norm@ffn_inner_norm=bn",
    )
    parser.add_argument("--rounds", type=int, default=7, help="default: 7")
    parser.add_argument("--compiled", action="store_true", help="time compiled models, too")
    arguments = parser.parse_intermixed_args(argv)
    require_positive(arguments, "threads", "rounds")
    configs: dict[str, dict[str, Any]] = {}
    for name in arguments.norms.split(","):
        norm, *more = name.split("+")
        configs[name] = bench_config([*arguments.overrides, f"norm={norm}", *more])
    runtime = start_runtime(next(iter(configs.values())), arguments.threads)
    unfolded = []
    for name in [name for name in configs if name.split("+")[0] == "bn"]:
        if folds(configs[name]):
            configs[name + FOLDED] = configs[name]
        else:
            unfolded.append(name)
    shape, groups = plan(configs, runtime, compiled=arguments.compiled)
    report = measure(groups, runtime, rounds=arguments.rounds, seconds=0.2)
    report |= {"overrides": arguments.overrides, "shape": str(shape), "unfolded": unfolded}
    show(report, notes=arguments.notes)
    write_json(report, arguments.json)
    return 0


def plan(
    configs: Configs, runtime: Runtime, *, compiled: bool = False
) -> tuple[Shape, dict[str, list[Candidate]]]:
    """Return the input shape of a norm alone, and the candidates by group; folded ones never train.

    Raises UserError for tasks other than translation and image classification.
    """
    first = next(iter(configs.values()))
    task = bench_task(first)
    if not isinstance(task, Translation | ImageClassification):
        raise UserError(
            f"task={first['choices']['task']}: only translation and images are timed; "
            "`python scripts/bench train --norms ln,bn task=lm` times steps of the others"
        )
    images = isinstance(task, ImageClassification)
    shape = _first_shape(first, task) if images else Shape(features=first["model"]["dim"])
    unit = "picture" if images else "sentence"
    whole = {name: config for name, config in configs.items() if not name.endswith(FOLDED)}
    groups = alone({name: config["norm"] for name, config in whole.items()}, shape, runtime)
    for fast in (False, True) if compiled else (False,):
        suffix = COMPILED if fast else ""
        if images:
            groups[STEP + suffix] = [
                Candidate(name, _training_step(name, config, runtime, compiled=fast))
                for name, config in whole.items()
            ]
        for count in (1, 32):
            groups[f"model, {count} {unit}{'s' if count > 1 else ''}{suffix}"] = [
                Candidate(name, reading(name, config, runtime, count=count, compiled=fast))
                for name, config in configs.items()
            ]
    return shape, groups


def folds(config: Mapping[str, Any]) -> bool:
    """Return whether any norm of a model can be folded."""
    return bool(fold(build_model(config, bench_task(config)).eval()))


def _first_shape(config: Mapping[str, Any], task: ImageClassification) -> Shape:
    """Return the input shape of the first norm in an image model."""
    model = build_model(config, task).eval()
    seen: list[torch.Size] = []
    norms = (module for module in model.modules() if isinstance(module, Norm))
    next(norms).register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape))
    with torch.no_grad():
        task.logits(model, task.batch("valid", range(32)))
    return Shape(*seen[0], dense=True)


def _training_step(
    name: str, config: Mapping[str, Any], runtime: Runtime, *, compiled: bool
) -> Callable[[], object]:
    observe = {**config["observe"], "fast": compiled, "probe": {}}
    return start(
        name, {**config, "observe": observe}, runtime, task=bench_task(config)
    ).trainer.step


def reading(
    name: str, config: Mapping[str, Any], runtime: Runtime, *, count: int, compiled: bool = False
) -> Callable[[], object]:
    """Return the forward pass of a model on `count` sentences of middle length, or images."""
    task = bench_task(config)
    model: Any = build_model(config, task).to(runtime.device, runtime.parameter_dtype).eval()
    for norm in running_norms(model):  # values that a trained norm might have
        mean, var = norm.running_moments()
        var = torch.empty_like(var).uniform_(0.5, 2.0)
        norm.enter(slice(len(mean)), mean.clone(), var, torch.ones_like(mean))
    if name.endswith(FOLDED):
        fold(model)
    if compiled:
        make_fast(model)
    order = task.lengths("valid").sum(1).argsort(kind="stable")
    middle = (len(order) - count) // 2
    batch = task.batch("valid", order[middle : middle + count].tolist()).to(runtime.device)

    def call() -> Tensor:
        with torch.no_grad(), runtime.autocast():
            if isinstance(task, ImageClassification):
                return task.logits(model, cast("ImageBatch", batch))
            text = cast("TranslationBatch", batch)
            source, target = text.source_tokens, text.tgt_tokens
            return model.project(model(text.source, source, text.tgt_in, target))

    return call


def show(report: Mapping[str, Any], *, notes: bool) -> None:
    """Print a report, with compiled models in a separate table; `notes` prints notes in full."""
    groups = report["groups"]
    first = next(iter(groups.values()))[0]["name"]
    parts = {
        compiled: {
            name: runs for name, runs in groups.items() if name.endswith(COMPILED) == compiled
        }
        for compiled in (False, True)
    }
    images = STEP in groups
    legend = [
        machine(report["environment"]),
        f"milliseconds (ratio to {first}), medians; alone on {report['shape']} values in float32"
        + (", " if images else " with padding, ")
        + "training forward and backward; "
        + (
            "a model names the classes of 1 or 32 images; a step of training is a whole one"
            if images
            else "a model reads 1 or 32 sentences and their translations"
        ),
    ]
    if report["unfolded"]:
        legend.append(f"not timed folded, as nothing folds: {', '.join(report['unfolded'])}")
    for compiled, part in parts.items():
        if part:
            if compiled:
                print()
            columns, rows = _table(part)
            print_table(["norm", *columns], rows, numeric=columns)
    print_legend([*map(Note.short, legend)], whole=notes)


def _table(groups: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the columns, and one row per candidate."""
    names = dict.fromkeys(run["name"] for runs in groups.values() for run in runs)
    rows = [
        [
            name,
            *(
                _cell(next((r for r in runs if r["name"] == name), None))
                for runs in groups.values()
            ),
        ]
        for name in names
    ]
    return list(groups), rows


def _cell(run: Mapping[str, Any] | None) -> str:
    if run is None:
        return "-"
    return f"{run['milliseconds']['median']:.3f} ({run['ratio_to_first']:.2f})"
