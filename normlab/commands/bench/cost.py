"""`normlab bench cost`: what a run would take, from a probe of some seconds."""

from collections.abc import Mapping
from typing import Any

from normlab.commands._terminal import print_table
from normlab.commands.bench._shared import bench_parser, machine, start_runtime, write_json

HELP = "what one run would take: updates, hours, memory, from some seconds"

_EXAMPLES = """examples:
  normlab bench cost norm=bn
  normlab bench cost task=multi30k scale=cpu data_dir=FOLDER
  normlab bench cost task=iwslt scale=gpu --seconds 60 --json cost.json

Updates are taken and batches scored as the run would; nothing is kept. normlab reproduce STUDY
--plan does it for every row of a study.
"""


def main(argv: list[str]) -> int:
    """Measure, print a table, write JSON where asked."""
    parser = bench_parser("cost", HELP, _EXAMPLES)
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as of `normlab train`")
    parser.add_argument("--seconds", type=float, default=20.0, help="of the probe; default: 20")
    arguments = parser.parse_intermixed_args(argv)
    if not arguments.seconds > 0:
        raise ValueError(f"--seconds={arguments.seconds} must be above 0")
    from normlab.bench.cost import measure
    from normlab.config import compose, to_dict

    config = to_dict(compose(arguments.overrides))
    runtime = start_runtime(config, config["observe"]["threads"])
    found = measure(config, runtime, seconds=arguments.seconds)
    if arguments.json is None:
        show(config, found)
    write_json(found, arguments.json)
    return 0


def show(config: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Print a report."""
    from normlab.commands._estimate import duration, estimate, memory, updates

    whole = estimate(config, found)
    rows = [
        ["start", "1", f"{found['start_seconds'] or 0:.1f} s"],
        ["update", updates(whole.updates), f"{1e3 * found['update_seconds']:.0f} ms"],
        ["validation", f"{whole.validations:,}", f"{found['validation_seconds']:.1f} s"],
        ["state saved", f"{whole.saves:,}", f"{found['save_seconds']:.2f} s"],
        ["test", "1", f"{found['test_seconds']:.1f} s"],
        ["all", "", duration(whole.seconds)],
    ]
    notes = [
        machine(found["environment"]),
        f"{found['params']:,} parameters, {found['tokens_per_update']:,.0f} tokens an update, "
        f"{found['updates_per_epoch']:,.0f} updates an epoch",
        f"memory: {memory(found['memory_bytes'])} at most",
    ]
    columns = ["part", "times", "each"]
    print_table(columns, rows, notes=notes, numeric=columns[1:])
