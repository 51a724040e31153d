"""`normlab bench train`: tokens a second of training, by norm, beside Hugging Face's BERT."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from normlab.commands._terminal import print_table
from normlab.commands.bench._shared import (
    add_overrides,
    bench_parser,
    machine,
    require_positive,
    spread_cells,
    start_runtime,
    write_json,
)

HELP = "tokens a second, share of the machine's peak, where time goes"

_EXAMPLES = """examples:
  normlab bench train                                       the small model on synthetic text
  normlab bench train model=iwslt placement=post            fairseq's transformer_iwslt_de_en
  normlab bench train --norms ln,bn,rms                     norms in turns, and their ratios
  normlab bench train precision=fp32 --profile --json b.json
  normlab bench train task=cifar10 model=resnet8 --norms bn,ln   pictures, of noise without data_dir
  normlab bench train task=mlm --peer                       BERT, and Hugging Face's beside it
  torchrun --nproc-per-node 2 -m normlab bench train        two processes, tokens of both
"""


def main(argv: list[str]) -> int:
    """Measure, print a table, write JSON where asked."""
    parser = bench_parser("train", HELP, _EXAMPLES)
    parser.add_argument("--norms", help="norms to compare in one process, as ln,bn,rms")
    parser.add_argument("--pairs", type=int, default=20_000, help="of the synthetic corpus")
    parser.add_argument(
        "--peer", action="store_true", help="add Hugging Face's BERT on the same batches"
    )
    add_turns(parser, steps=10)
    arguments = parser.parse_intermixed_args(argv)
    names = arguments.norms.split(",") if arguments.norms else []
    require_positive(arguments, "pairs")
    return measure(
        arguments,
        {name: [f"norm={name}"] for name in names} or {"": []},
        pairs=arguments.pairs,
        peer=arguments.peer,
    )


def add_turns(parser: argparse.ArgumentParser, *, steps: int) -> None:
    """Add the options of runs that take turns, `steps` in each by default."""
    add_overrides(parser)
    parser.add_argument("--intervals", type=int, default=5, help="measurements; default: 5")
    parser.add_argument("--steps", type=int, default=steps, help=f"in each; default: {steps}")
    parser.add_argument("--warmup", type=int, default=5, help="steps before; default: 5")
    parser.add_argument("--profile", action="store_true", help="add a table of where time goes")


def measure(
    arguments: argparse.Namespace,
    variants: Mapping[str, Sequence[str]],
    *,
    pairs: int | None = None,
    peer: bool = False,
) -> int:
    """Let runs take turns: a name, which may be left to the norm, and the overrides of each."""
    require_positive(arguments, "threads", "intervals", "steps", "warmup")
    from normlab import distributed
    from normlab.bench import train
    from normlab.bench.profile import profile_steps
    from normlab.bench.work import bench_config

    configs = {
        name: bench_config([*arguments.overrides, *own], pairs=pairs)
        for name, own in variants.items()
    }
    first = next(iter(configs.values()))
    runtime = start_runtime(first, arguments.threads)
    contenders: list[train.Measured] = [
        train.start(name or config["choices"]["norm"], config, runtime)
        for name, config in configs.items()
    ]
    if peer:
        from normlab.bench import hugging_face
        from normlab.build import build_task

        contenders.append(hugging_face.start(first, build_task(first), runtime))
    report = train.measure(
        contenders,
        runtime,
        intervals=arguments.intervals,
        steps=arguments.steps,
        warmup=arguments.warmup,
    )
    report["overrides"] = arguments.overrides
    if arguments.profile:
        for contender, run in zip(contenders, report["runs"], strict=True):
            run["profile"] = profile_steps(contender.step, arguments.steps)
    distributed.shutdown()
    if runtime.world.rank == 0:
        show(report)
        write_json(report, arguments.json)
    return 0


def show(report: Mapping[str, Any]) -> None:
    """Print a report."""
    rows = [
        [
            run["name"],
            *spread_cells(run["tokens_per_second"], run["tokens_per_busy_second"], ",.0f"),
            f"{run['share_of_peak']:.0%}",
            f"{run['ratio_to_first']:.3f}",
            f"{1 - run['padding_share']:.3f}",
        ]
        for run in report["runs"]
    ]
    unit = report["runs"][0]["unit"]
    columns = ["run", f"{unit}/s", "range", f"{unit}/busy s", "of peak", "to first", "fill"]
    print_table(columns, rows, notes=_notes(report), numeric=columns[1:])
    for run in report["runs"]:
        if "profile" in run:
            print()
            _show_profile(run)


def _notes(report: Mapping[str, Any]) -> list[str]:
    run, peak = report["runs"][0], report["peak_gflop_per_second"]
    unit = {"tokens": "target token"}.get(run["unit"], run["unit"].removesuffix("s"))
    first = report["start_to_first_step_seconds"]
    return [
        machine(report["environment"]),
        f"median of {run['tokens_per_second']['n']} intervals of {run['steps_per_interval']} "
        f"steps, {run['target_tokens_per_step']:,.0f} {unit}s a step; busy seconds leave "
        f"out what other programs took",
        f"peak of the model's products: {peak['median']:,.0f} GFLOP/s "
        f"({peak['min']:,.0f}-{peak['max']:,.0f}); useful: "
        f"{run['useful_mflop_per_token']:.1f} MFLOP a {unit}",
        f"memory {report['peak_memory_bytes'] / 2**30:.2f} GiB at most; start to first step "
        + ("unknown" if first is None else f"{first:.1f} s"),
    ]


def _show_profile(run: Mapping[str, Any]) -> None:
    spent = run["profile"]["milliseconds_per_step"]
    total = sum(spent.values())
    rows = [[kind, f"{time:.1f}", f"{time / total:.1%}"] for kind, time in spent.items()]
    print_table(
        [f"{run['name']}: kind", "ms a step", "share"], rows, numeric=["ms a step", "share"]
    )
    print()
    columns = ["operator", "kind", "ms a step", "calls"]
    operators = [
        [item["name"], item["kind"], f"{item['milliseconds']:.2f}", f"{item['calls']:.0f}"]
        for item in run["profile"]["operators"]
    ]
    print_table(columns, operators, numeric=columns[2:])
