"""`normlab bench data`: from raw text to batches."""

from collections.abc import Mapping
from typing import Any

from normlab.commands._terminal import print_table
from normlab.commands.bench._shared import bench_parser, require_positive, write_json

HELP = "from raw text to batches, by time and memory"

_EXAMPLES = """examples:
  normlab bench data                                        160,000 synthetic sentence pairs
  normlab bench data --pairs 1000000
  normlab bench data task=translation data_dir=FOLDER       text of your own
"""


def main(argv: list[str]) -> int:
    """Measure, print a table, write JSON where asked."""
    parser = bench_parser("data", HELP, _EXAMPLES)
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as of `normlab train`")
    parser.add_argument("--pairs", type=int, default=160_000, help="of the synthetic corpus")
    arguments = parser.parse_intermixed_args(argv)
    require_positive(arguments, "pairs")
    from normlab.bench import data
    from normlab.bench.work import bench_config

    report = data.measure(bench_config(arguments.overrides, pairs=arguments.pairs))
    report["overrides"] = arguments.overrides
    show(report)
    write_json(report, arguments.json)
    return 0


def show(report: Mapping[str, Any]) -> None:
    """Print a report."""
    rows = [
        [
            stage["name"],
            f"{stage['seconds']:.2f}",
            f"{stage['processor_seconds']:.2f}",
            f"{stage['peak_memory_bytes'] / 2**20:,.0f}",
        ]
        for stage in report["stages"]
    ]
    notes = [
        f"{report['label']}: {report['pairs']:,} training pairs, {report['tokens']:,} tokens",
        f"batches: {report['tokens_per_second']:,.0f} target tokens a second",
        "memory is the most that the process has held so far, "
        f"{report['memory_before_bytes'] / 2**20:,.0f} MiB of it before the first stage",
    ]
    columns = ["stage", "seconds", "processor", "memory, MiB"]
    print_table(columns, rows, notes=notes, numeric=columns[1:])
