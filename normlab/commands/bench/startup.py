"""`normlab bench startup`: how long a command takes to answer."""

import shlex
from collections.abc import Mapping
from typing import Any

from normlab.commands._terminal import print_table
from normlab.commands.bench._shared import bench_parser, require_positive, spread_cells, write_json

HELP = "how long commands take to answer"

_EXAMPLES = """examples:
  normlab bench startup
  normlab bench startup "ls norm" "compare --runs-dir runs"
  normlab bench startup "eval RUN" "translate RUN < in.de"
"""
_FIRST = ("first_seconds", "first_processor_seconds")
COMMANDS = ("--help", "ls norm", "ls study", "claims", "explain bn", "train --cfg job")


def main(argv: list[str]) -> int:
    """Measure, print a table, write JSON where asked."""
    parser = bench_parser("startup", HELP, _EXAMPLES)
    parser.add_argument("commands", nargs="*", metavar="COMMAND", help="in quotes, without normlab")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    arguments = parser.parse_args(argv)
    require_positive(arguments, "rounds")
    from normlab.bench import process

    commands = [shlex.split(text) for text in arguments.commands or COMMANDS]
    report = {
        "format": "normlab.bench.startup/1",
        "commands": process.summary(process.in_turns(commands, rounds=arguments.rounds)),
    }
    show(report["commands"])
    write_json(report, arguments.json)
    return 0


def show(commands: list[Mapping[str, Any]]) -> None:
    """Print a report."""
    rows = [
        [
            f"normlab {found['command']}",
            *spread_cells(found["seconds"], found["processor_seconds"], ".2f"),
            *(format(found[key]["median"], ".2f") if key in found else "-" for key in _FIRST),
            f"{found['lines']:,}",
        ]
        for found in commands
    ]
    columns = ["command", "seconds", "range", "processor", "until shown", "processor then", "lines"]
    note = "medians, each in a process of its own whose standard error is a terminal"
    print_table(columns, rows, notes=[note], numeric=columns[1:])
