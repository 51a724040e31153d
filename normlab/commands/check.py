"""`normlab norm check NAME`: check a norm against the norm contract."""

import argparse
import shutil
import sys
import textwrap
import time
from collections.abc import Sequence
from functools import partial

from normlab.commands._arguments import HelpFormatter
from normlab.commands._terminal import at_work

HELP = "check a norm against the norm contract: axes, padding, gradients, ..."

_EXAMPLES = """examples:
  normlab norm check mine       a norm of your own (normlab norm new mine), in seconds
  normlab norm check ln bn      several

One line per check: ok, violated or does not apply, and what was seen. The exit status is 1 if a
check is violated. normlab norm card mine compares it with other norms.
"""
_INDENT = 28
_STATUS = {True: "ok", False: "violated", None: "does not apply"}


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    result = argparse.ArgumentParser(
        prog="normlab norm check",
        description="C" + HELP[1:] + ".",
        epilog=_EXAMPLES,
        formatter_class=HelpFormatter,
    )
    result.add_argument("names", nargs="+", metavar="NAME", help="options of configs/norm")
    return result


def main(argv: list[str]) -> int:
    """Check norms, one line per check; return 1 if one is violated."""
    arguments = parser().parse_args(argv)
    _check_names(arguments.names)
    violations = [_check(name) for name in arguments.names]
    return 1 if any(violations) else 0


def _check_names(names: Sequence[str]) -> None:
    """Raise ValueError naming what is no norm, before anything is loaded."""
    from normlab.near import of_option
    from normlab.registry import option_names

    there = option_names("norm")
    for name in names:
        if name not in there:
            raise ValueError(
                f"no norm {name!r:.60}: there are {', '.join(there)}.{of_option(name, there)}"
            )


def _check(name: str) -> int:
    """Print the verdicts on a norm, and return how many checks it violates."""
    with at_work("loading"):
        from normlab.inspect.contract import examine
        from normlab.inspect.subject import BareNorm
        from normlab.train.build import make_norm

    start = time.monotonic()
    subject = BareNorm(partial(make_norm, name))
    norm = subject.new()
    print(f"norm {name}: {type(norm).__module__}.{type(norm).__name__}")
    counts = dict.fromkeys(_STATUS.values(), 0)
    for question, found in examine(subject):
        status = _STATUS[found.holds]
        counts[status] += 1
        _line(question, status, found.why_not or found.answer)
    said = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    print(f"{sum(counts.values())} checks in {time.monotonic() - start:.1f} s: {said}")
    for key in _without_range(name):
        _line("note", "", f"norm.{key} has no row in normlab/constraints.py: any number is taken")
    return counts["violated"]


def _without_range(name: str) -> list[str]:
    """Return the numbers of a norm's config that the table of constraints has no row for."""
    import yaml

    from normlab.constraints import constraint_of
    from normlab.registry import CONFIG_DIR

    node = yaml.safe_load((CONFIG_DIR / "norm" / f"{name}.yaml").read_text(encoding="utf-8"))
    numbers = [key for key, value in node.items() if type(value) in (int, float)]
    return [key for key in numbers if constraint_of(f"norm.{key}") is None]


def _line(check: str, status: str, text: str) -> None:
    """Print a line; on a terminal what is too long goes on below its column."""
    head = f"  {check:<11}{status:<15}"
    if sys.stdout.isatty():
        width = max(_INDENT + 20, shutil.get_terminal_size().columns)
        text = textwrap.fill(
            text, width, initial_indent=" " * _INDENT, subsequent_indent=" " * _INDENT
        ).lstrip()
    print(f"{head}{text}", flush=True)
