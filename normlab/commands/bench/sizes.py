"""`normlab bench sizes`: how the cost of training grows with model, batch, corpus and processes."""

from collections.abc import Mapping, Sequence
from typing import Any

from normlab.commands._paths import as_path
from normlab.commands._terminal import complain, print_table
from normlab.commands.bench._shared import bench_parser, machine, require_positive, write_json

HELP = "cost by size: width, depth, batch, corpus, processes, runs side by side"

_EXAMPLES = """examples:
  normlab bench sizes --figure sizes.svg                    several minutes
  normlab bench sizes --axes model.dim,ranks norm=bn
  normlab bench sizes --axes runs                           what sweeps gain from runs at a time
"""


def main(argv: list[str]) -> int:
    """Measure one size after the other, print a table, write JSON and a figure where asked."""
    from normlab.bench import sizes

    parser = bench_parser("sizes", HELP, _EXAMPLES)
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as of `normlab train`")
    parser.add_argument("--axes", default=",".join(sizes.AXES), help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=4, help="in each of 3 turns; default: 4")
    parser.add_argument("--figure", type=as_path, metavar="FILE", help=".svg or .png, light")
    arguments = parser.parse_intermixed_args(argv)
    require_positive(arguments, "steps")
    if arguments.figure is not None and arguments.figure.suffix not in (".svg", ".png"):
        raise ValueError(f"--figure {arguments.figure}: give a name that ends in .svg or .png")
    asked = list(sizes.points(arguments.axes.split(",")))
    taken = []
    for point in asked:
        complain(f"{point.axis}={point.value}")
        taken.append(sizes.take(point, arguments.overrides, steps=arguments.steps))
    report = {
        "format": "normlab.bench.sizes/1",
        "overrides": arguments.overrides,
        "environment": taken[0][0]["environment"],
        "points": [sizes.figures(*each) for each in zip(asked, taken, strict=True)],
    }
    show(report["points"], machine(report["environment"]))
    write_json(report, arguments.json)
    if arguments.figure is not None:
        from normlab.reports.figures import style
        from normlab.reports.figures.sizes import sizes as draw

        style.write(draw(report["points"]), arguments.figure, title="Cost of training by size")
        print(arguments.figure)
    return 0


def show(points: Sequence[Mapping[str, Any]], where: str) -> None:
    """Print what was measured."""
    rows = [
        [
            f"{point['axis']}={point['value']:,}",
            f"{point['tokens_per_second']['median']:,.0f}",
            f"{point['tokens_per_busy_second']['median']:,.0f}",
            f"{point['share_of_peak']:.0%}",
            f"{point['useful_mflop_per_token']:,.0f}",
            f"{point['peak_memory_bytes'] / 2**30:.2f}",
        ]
        for point in points
    ]
    columns = ["size", "tokens/s", "tokens/busy s", "of peak", "MFLOP/token", "memory, GiB"]
    print_table(columns, rows, notes=[where], numeric=columns[1:])
