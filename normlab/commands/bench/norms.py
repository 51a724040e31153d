"""`normlab bench norms`: what a norm costs alone and in a model, batch norm folded among them."""

from collections.abc import Mapping
from typing import Any

from normlab.commands._terminal import print_table
from normlab.commands.bench._shared import (
    add_overrides,
    bench_parser,
    machine,
    require_positive,
    start_runtime,
    write_json,
)

HELP = "alone in training and evaluation, and the latency of a model with each"

_EXAMPLES = """examples:
  normlab bench norms
  normlab bench norms --norms ln,bn,in model=base           alone at the width of the model
  normlab bench norms precision=fp32 --json norms.json
"""


def main(argv: list[str]) -> int:
    """Measure, print a table, write JSON where asked."""
    parser = bench_parser("norms", HELP, _EXAMPLES)
    add_overrides(parser)
    parser.add_argument("--norms", default="ln,rms,gn,bn,global,in,none", help="as ln,bn,rms")
    parser.add_argument("--rounds", type=int, default=7, help="default: 7")
    arguments = parser.parse_intermixed_args(argv)
    require_positive(arguments, "threads", "rounds")
    from normlab.bench import norms
    from normlab.bench.work import bench_config

    names = arguments.norms.split(",")
    configs = {name: bench_config([*arguments.overrides, f"norm={name}"]) for name in names}
    if "bn" in configs:
        configs[norms.FOLDED] = configs["bn"]
    first = configs[names[0]]
    runtime = start_runtime(first, arguments.threads)
    shape = norms.Shape(features=first["model"]["dim"])
    groups = norms.alone({name: configs[name]["norm"] for name in names}, shape, runtime)
    for name, sentences in {"model, 1 sentence": 1, "model, 32 sentences": 32}.items():
        groups[name] = norms.in_a_model(configs, runtime, sentences=sentences)
    report = norms.measure(groups, runtime, rounds=arguments.rounds, seconds=0.2)
    report |= {"overrides": arguments.overrides, "shape": str(shape)}
    show(report)
    write_json(report, arguments.json)
    return 0


def show(report: Mapping[str, Any]) -> None:
    """Print a report."""
    groups = report["groups"]
    names = list(dict.fromkeys(run["name"] for runs in groups.values() for run in runs))
    rows = []
    for name in names:
        cells = [name]
        for runs in groups.values():
            run = next((run for run in runs if run["name"] == name), None)
            cells.append(
                "-"
                if run is None
                else f"{run['milliseconds']['median']:.3f} ({run['ratio_to_first']:.2f})"
            )
        rows.append(cells)
    notes = [
        machine(report["environment"]),
        f"milliseconds (ratio to {names[0]}), medians; alone on {report['shape']} values in "
        "float32 with padding, training forward and backward; a model reads 1 or 32 sentences "
        "and their translations",
    ]
    print_table(["norm", *groups], rows, notes=notes, numeric=list(groups))
