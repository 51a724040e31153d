"""`normlab board`: the page of a folder of runs, in a browser, while they go on."""

import argparse
from pathlib import Path

from normlab.commands._compared import add_compared
from normlab.commands._help import HelpFormatter
from normlab.commands._paths import as_path
from normlab.commands._runs import nearest

HELP = "show a folder of runs in a browser while they go on: table, curves, steps"

_EXAMPLES = """examples:
  normlab board                    the runs below runs/, at http://127.0.0.1:8000/
  normlab board /data/runs --port 8001
  normlab board --baseline ln      what the others are compared with, paired by seed

The page is that of normlab report RUN. It follows runs that go on by their metrics.jsonl and
progress.json, and reads again only what has changed. It is for this machine alone: from another
one, ssh -L 8000:127.0.0.1:8000 MACHINE brings it to you. Ctrl-C ends it.
"""


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    result = argparse.ArgumentParser(
        prog="normlab board",
        description="Show a folder of runs in a browser while they go on.",
        epilog=_EXAMPLES,
        formatter_class=HelpFormatter,
    )
    result.add_argument(
        "runs_dir",
        nargs="?",
        type=as_path,
        default=Path("runs"),
        metavar="RUNS_DIR",
        help="a folder of runs; default: runs",
    )
    result.add_argument("--port", type=int, default=8000, help="default: 8000; 0 is any free one")
    add_compared(result)
    return result


def main(argv: list[str]) -> int:
    """Serve the page until Ctrl-C; raises ValueError for no folder and a port that is taken."""
    arguments = parser().parse_args(argv)
    if not arguments.runs_dir.is_dir():
        near = nearest(arguments.runs_dir)
        raise ValueError(
            f"{arguments.runs_dir}: no such folder"
            + (f". Did you mean {near}?" if near else "; `normlab train` makes runs/")
        )
    if not 0 <= arguments.port < 2**16:
        raise ValueError(f"--port {arguments.port}: must be from 0 to 65535")
    from normlab.commands._board import Board, Server

    board = Board(arguments.runs_dir, baseline=arguments.baseline, scores=arguments.score)
    try:
        server = Server(board, arguments.port)
    except OSError as error:
        raise ValueError(
            f"--port {arguments.port}: {error.strerror}; name another, or 0 for any free one"
        ) from None
    with server:
        print(f"{arguments.runs_dir} is shown at {server.url} (Ctrl-C ends it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("\nthe board is closed")
    return 0
