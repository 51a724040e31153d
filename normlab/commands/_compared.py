"""The arguments that say what is compared with what, on the terminal and on pages."""

import argparse


def add_compared(
    parser: argparse.ArgumentParser,
    *,
    baseline: str = "ln",
    scores: str = "those of the test",
) -> None:
    """Add `--baseline` and `--score`; `baseline` and `scores` name their defaults."""
    parser.add_argument(
        "--baseline",
        metavar="ROW",
        help=f"the row that the others are compared with, such as bn; default: {baseline}",
    )
    parser.add_argument(
        "--score",
        action="append",
        default=[],
        metavar="NAME",
        help=f"a column for this score; may be repeated; default: {scores}",
    )
