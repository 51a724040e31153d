"""Tokens per second of training, by norm or by sets of probes."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bench.common import (
    bench_config,
    bench_parser,
    bench_task,
    machine,
    require_positive,
    spread_cells,
    start_runtime,
    write_json,
)
from normlab.distributed import process_group
from normlab.reports.legend import Note, print_legend
from normlab.terminal import print_table
from normlab.training.runtime import Runtime
from normlab.training.speed import StepClock, Steps, flop_per_token, peak, spread, start

_EXAMPLES = """examples:
  python scripts/bench train                                the small model on synthetic text
  python scripts/bench train model=iwslt placement=post     fairseq's transformer_iwslt_de_en
  python scripts/bench train --norms ln,bn,rms              norms in turns, and their ratios
  python scripts/bench train norm=bn --probes --steps 50    no probe, the default ones, all
  python scripts/bench train task=cifar10 model=resnet8 --norms bn,ln
  torchrun --nproc-per-node 2 scripts/bench train           two processes, tokens of both
"""
PROBES = {"no probe": ["probe=[]"], "default": [], "full": ["probe=full"]}


def main(argv: list[str]) -> int:
    """Measure and print a table; with --json, also write a report."""
    parser = bench_parser("train", "Tokens per second, share of the machine's peak.", _EXAMPLES)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--norms", help="norms to compare, such as ln,bn,rms")
    what.add_argument("--probes", action="store_true", help="compare sets of probes")
    parser.add_argument("--pairs", type=int, default=20_000, help="sentence pairs in the corpus")
    parser.add_argument("--intervals", type=int, default=5, help="measurements; default: 5")
    parser.add_argument("--steps", type=int, default=10, help="steps per measurement; default: 10")
    parser.add_argument("--warmup", type=int, default=5, help="warm-up steps; default: 5")
    arguments = parser.parse_intermixed_args(argv)
    require_positive(arguments, "pairs", "threads", "intervals", "steps", "warmup")
    names = arguments.norms.split(",") if arguments.norms else []
    variants = PROBES if arguments.probes else {name: [f"norm={name}"] for name in names}
    configs = {
        name: bench_config([*arguments.overrides, *own])
        for name, own in (variants or {"": []}).items()
    }
    first = next(iter(configs.values()))
    runtime = start_runtime(first, arguments.threads)
    contenders = [
        start(
            name or config["choices"]["norm"],
            config,
            runtime,
            task=bench_task(config, pairs=arguments.pairs),
        )
        for name, config in configs.items()
    ]
    report = measure(
        contenders,
        runtime,
        intervals=arguments.intervals,
        steps=arguments.steps,
        warmup=arguments.warmup,
    )
    report["overrides"] = arguments.overrides
    process_group.shutdown()
    if runtime.world.rank == 0:
        show(report, notes=arguments.notes)
        write_json(report, arguments.json)
    return 0


def measure(
    contenders: Sequence[Steps], runtime: Runtime, *, intervals: int, steps: int, warmup: int
) -> dict[str, Any]:
    """Warm up all runs, let them take turns, and return the report as plain values."""
    clock = StepClock(runtime.device)
    peaks: list[float] = []
    wall: dict[str, list[float]] = {each.name: [] for each in contenders}
    busy: dict[str, list[float]] = {each.name: [] for each in contenders}
    for contender in contenders:
        contender.take(warmup, clock)
    for turn in range(intervals):
        # Every other round runs in reverse order, so that no run always follows the same one.
        for contender in contenders if turn % 2 == 0 else reversed(contenders):
            peaks.append(peak(contenders[0].trainer.model, runtime))
            span, tokens = contender.take(steps, clock)
            wall[contender.name].append(tokens / span.wall)
            busy[contender.name].append(tokens / span.busy)
    flop = flop_per_token(contenders[0].trainer)
    of_machine = statistics.median(peaks) * runtime.world.size
    first = busy[contenders[0].name]
    return {
        "format": "normlab.bench.train/1",
        "peak_gflop_per_second": spread([rate / 1e9 for rate in peaks]),
        "peak_memory_bytes": runtime.peak_memory_bytes(),
        "environment": runtime.environment(),
        "mflop_per_token": flop / 1e6,
        "steps_per_interval": steps,
        "runs": [
            {
                "name": each.name,
                "choices": dict(each.config["choices"]),
                "unit": each.unit,
                "tokens_per_second": spread(wall[each.name]),
                "tokens_per_busy_second": spread(busy[each.name]),
                "share_of_peak": statistics.median(busy[each.name]) * flop / of_machine,
                "ratio_to_first": statistics.median(
                    own / other for own, other in zip(busy[each.name], first, strict=True)
                ),
            }
            for each in contenders
        ],
    }


def show(report: Mapping[str, Any], *, notes: bool) -> None:
    """Print a report; `notes` prints all notes in full."""
    rows = [
        [
            run["name"],
            *spread_cells(run["tokens_per_second"], run["tokens_per_busy_second"], ",.0f"),
            f"{run['share_of_peak']:.0%}",
            f"{run['ratio_to_first']:.3f}",
        ]
        for run in report["runs"]
    ]
    unit = report["runs"][0]["unit"]
    rate = report["peak_gflop_per_second"]
    columns = ["run", f"{unit}/s", "range", f"{unit}/busy s", "of peak", "to first"]
    legend = [
        machine(report["environment"]),
        f"medians of {report['runs'][0]['tokens_per_second']['n']} intervals of "
        f"{report['steps_per_interval']} steps; busy seconds leave out what other programs took",
        f"peak of the model's products: {rate['median']:,.0f} GFLOP/s "
        f"({rate['min']:,.0f}-{rate['max']:,.0f}); {report['mflop_per_token']:.1f} MFLOP per "
        f"{unit.removesuffix('s')} of training",
        f"memory {report['peak_memory_bytes'] / 2**30:.2f} GiB at most",
    ]
    print_table(columns, rows, numeric=columns[1:])
    print_legend([*map(Note.short, legend)], whole=notes)
