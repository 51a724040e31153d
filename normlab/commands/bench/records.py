"""`normlab bench records`: how long it takes to list and compare many runs."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from normlab.commands._paths import as_path
from normlab.commands._terminal import complain
from normlab.commands.bench._shared import bench_parser, require_positive, write_json
from normlab.commands.bench.startup import show
from normlab.registry import CONFIG_DIR

HELP = "listing and comparing many runs"

_EXAMPLES = """examples:
  normlab bench records                        10,000 made-up runs: 300 MB for some minutes
  normlab bench records --json results/bench/records.json
"""


def main(argv: list[str]) -> int:
    """Make runs up, measure the commands that read them, print a table, write JSON where asked."""
    parser = bench_parser("records", HELP, _EXAMPLES)
    parser.add_argument("--runs", type=int, default=10_000, help="default: 10000")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument(
        "--like",
        type=as_path,
        default=CONFIG_DIR.parent / "results",
        metavar="FOLDER",
        help="the runs are made like those in it; default: results",
    )
    arguments = parser.parse_args(argv)
    require_positive(arguments, "runs", "rounds")
    from normlab.bench import process, records

    like = records.examples(arguments.like)
    with tempfile.TemporaryDirectory(prefix="normlab-") as folder:
        runs, results = Path(folder) / "runs", Path(folder) / "results"
        complain(f"making {arguments.runs:,} runs up below {folder}")
        records.write_runs(runs, records.made_up(like, count=arguments.runs))
        records.write_study(results, records.made_up(like[:1], count=arguments.runs))
        commands = records.commands(runs, results)
        measured = process.summary(process.in_turns(commands, rounds=arguments.rounds))
    found: list[Mapping[str, Any]] = [
        {**each, "command": each["command"].replace(folder, "FOLDER")} for each in measured
    ]
    show(found)
    report = {"format": "normlab.bench.records/1", "runs": arguments.runs, "commands": found}
    write_json(report, arguments.json)
    return 0
