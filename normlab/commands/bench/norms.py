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

HELP = "alone in training and evaluation, and the time of a model with each"

_EXAMPLES = """examples:
  normlab bench norms
  normlab bench norms --norms ln,bn,in model=base           alone at the width of the model
  normlab bench norms precision=fp32 --json norms.json
  normlab bench norms task=cifar10 model=vit --compiled \\
    --norms ln,bn,bn+norm@ffn_inner_norm=bn
  normlab bench norms task=cifar10 model=resnet8 --norms bn,ln,gn_sample,none

Of pictures a step of training is timed as well; without data_dir they are noise of CIFAR-10's size.
"""


def main(argv: list[str]) -> int:
    """Measure, print a table, write JSON where asked."""
    parser = bench_parser("norms", HELP, _EXAMPLES)
    add_overrides(parser)
    parser.add_argument(
        "--norms",
        default="ln,rms,gn,bn,bn_position,global,in,none",
        help="as ln,bn,rms; + adds settings of one, as bn+norm@ffn_inner_norm=bn",
    )
    parser.add_argument("--rounds", type=int, default=7, help="default: 7")
    parser.add_argument(
        "--compiled", action="store_true", help="models once more with compiled layers"
    )
    arguments = parser.parse_intermixed_args(argv)
    require_positive(arguments, "threads", "rounds")
    from normlab.bench import norms
    from normlab.bench.work import bench_config

    configs: dict[str, dict[str, Any]] = {}
    for name in arguments.norms.split(","):
        norm, *more = name.split("+")
        configs[name] = bench_config([*arguments.overrides, f"norm={norm}", *more])
    runtime = start_runtime(next(iter(configs.values())), arguments.threads)
    unfolded = []
    for name in [name for name in configs if name.split("+")[0] == "bn"]:
        if norms.folds(configs[name]):
            configs[name + norms.FOLDED] = configs[name]
        else:
            unfolded.append(name)
    shape, groups = norms.plan(configs, runtime, compiled=arguments.compiled)
    report = norms.measure(groups, runtime, rounds=arguments.rounds, seconds=0.2)
    report |= {"overrides": arguments.overrides, "shape": str(shape), "unfolded": unfolded}
    show(report)
    write_json(report, arguments.json)
    return 0


def show(report: Mapping[str, Any]) -> None:
    """Print a report, the compiled models in a table of their own."""
    from normlab.bench.norms import COMPILED, STEP

    groups = report["groups"]
    first = next(iter(groups.values()))[0]["name"]
    parts = {
        compiled: {
            name: runs for name, runs in groups.items() if name.endswith(COMPILED) == compiled
        }
        for compiled in (False, True)
    }
    pictures = STEP in groups
    notes = [
        machine(report["environment"]),
        f"milliseconds (ratio to {first}), medians; alone on {report['shape']} values in float32"
        + (", " if pictures else " with padding, ")
        + "training forward and backward; "
        + (
            "a model names the classes of 1 or 32 pictures; a step of training is a whole one"
            if pictures
            else "a model reads 1 or 32 sentences and their translations"
        ),
    ]
    if report["unfolded"]:
        notes.append(f"not timed folded, as nothing folds: {', '.join(report['unfolded'])}")
    for compiled, part in parts.items():
        if part:
            if compiled:
                print()
            columns, rows = _table(part)
            last = compiled or not parts[True]
            print_table(["norm", *columns], rows, notes=notes if last else [], numeric=columns)


def _table(groups: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the columns, and a row a candidate."""
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
