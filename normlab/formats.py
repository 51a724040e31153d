"""Formats numbers, durations and tables for people, in the terminal and on pages."""

import math
import re
from collections.abc import Iterable, Sequence

CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
"""Characters that must be escaped in print: controls, marks that change the text's direction,
and bytes that are not UTF-8. Spaces and joiners of all scripts may occur in names."""
MOST_DECIMALS = 6
_POWERS = 10**6
"""From this value on, a number is written with three digits and a power of ten."""


def duration(seconds: float | int) -> str:
    """Format a duration with at most two units, such as `42 s`, `3 min 5 s` or `2 h 7 min`."""
    whole = round(seconds)
    for size, unit, smaller, rest in ((3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // smaller} {rest}"
    return f"{whole} s"


def estimated(seconds: float | int) -> str:
    """Format an estimated duration without unreliable digits, such as `35 s` or `33 min`."""
    steps = ((10, 1), (90, 5), (7200, 60), (36_000, 600))
    step = next((step for limit, step in steps if seconds < limit), 3600)
    rounded = max(1, round(seconds / step) * step)
    return duration(rounded).removesuffix(" 0 s").removesuffix(" 0 min")


def counted(count: int, noun: str) -> str:
    """Format a count with a noun whose plural ends in `s`, such as `1 seed` or `1,000 runs`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def short_number(value: float | int) -> str:
    """Format a number with four significant digits, or as a whole number from 1,000 on."""
    if not math.isfinite(value):
        return str(float(value))
    whole = abs(value) >= 1000 or value == int(value)
    return f"{value:z,.0f}" if whole else f"{value:.4g}"


def aligned(*values: float | int) -> list[str]:
    """Format numbers with the decimals that the largest number needs to show three digits.

    If a number is a million or more, each is written with three digits and a power of ten. If all
    numbers round to zero at `MOST_DECIMALS`, each is written as `0`.
    """
    finite = [abs(value) for value in values if math.isfinite(value) and value]
    if finite and max(finite) >= _POWERS:
        return [f"{value:.3g}" for value in values]
    return with_decimals(values, decimals_of(*values))


def decimals_of(*values: float | int) -> int:
    """Return the number of decimals that the largest number needs to show three digits."""
    finite = [abs(each) for each in values if math.isfinite(each) and round(each, MOST_DECIMALS)]
    needed = 2 - math.floor(math.log10(max(finite))) if finite else 0
    return min(MOST_DECIMALS, max(0, needed))


def with_decimals(values: Sequence[float], decimals: int) -> list[str]:
    """Format numbers with this many decimals, infinity as `inf`, and zero without a sign."""
    return [f"{value:z.{decimals}f}" if math.isfinite(value) else str(value) for value in values]


def rounded_count(count: float) -> str:
    """Format a large count with three significant digits, such as `601,000`."""
    return f"{float(f'{count:.3g}'):,.0f}"


def share(value: float, *, smallest: float = 0.0) -> str:
    """Format a share in percent with one decimal, such as `12.3 %`, or `0 %` below `smallest`."""
    return f"{100 * value:.1f} %" if value >= smallest else "0 %"


def pipes(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, words: int, notes: Iterable[str] = ()
) -> list[str]:
    """Return the lines of a Markdown table and of the list of its notes.

    Only the first `words` columns are left-aligned, because the others have numbers.
    """
    rules = [*["---"] * words, *["---:"] * (len(head) - words)]
    table = ["| " + " | ".join(cells) + " |" for cells in (head, rules, *rows)]
    return [*table, "", *(f"- {note}" for note in notes)]
