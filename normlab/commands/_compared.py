"""The arguments that say what is compared with what: on the terminal, on pages, on the board."""

import argparse


def add_compared(
    parser: argparse.ArgumentParser,
    *,
    where: str = "",
    baseline: str = "ln",
    scores: str = "those of the test",
) -> None:
    """Add `--baseline` and `--score`; `baseline` and `scores` say what is taken without them.

    `where` opens the help where a command takes them for some of its work alone.
    """
    parser.add_argument(
        "--baseline",
        metavar="ROW",
        help=f"{where}the row that the others are compared with, such as bn; default: {baseline}",
    )
    parser.add_argument(
        "--score",
        action="append",
        default=[],
        metavar="NAME",
        help=f"{where}a column for this score; may be repeated; default: {scores}",
    )
