"""The colours of a page, and the hue, dashes and marker of each row, the same in every chart.

Lines differ in hue, dashes and marker, so that they are distinguishable in grayscale print and for
colour-blind readers (hues of Okabe and Ito 2008, "Color Universal Design", lightened to the same
contrast for dark pages).
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from normlab.reports.runs import Run

HUES = 7
NORM_HUES = {
    "ln": 0,
    "bn": 1,
    "rms": 2,
    "pn": 3,
    "gn": 4,
    "dyt": 5,
    "none": 6,
    "bn_rms": 5,
    "bn_position": 3,
    "bn_sample": 4,
    "bn_noisy": 5,
    "global": 2,
    "gn_sample": 5,
    "brn": 2,
    "rbn": 5,
    "mabn": 4,
    "repbn": 0,
    "prepbn": 2,
    "un": 3,
    "pn_v": 2,
    "prms": 3,
    "in": 5,
    "seqn": 3,
    "ada": 4,
    "derf": 2,
    "scale": 3,
}
"""The hue of each norm, the same in every chart. Other norms get one from their name's checksum."""
DASHES = ("none", "7 3", "2 2", "8 3 2 3")
MARKS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")


@dataclass(frozen=True)
class Theme:
    """The colours of a theme: background, text, muted text, grid, and the hues of lines."""

    paper: str
    ink: str
    quiet: str
    grid: str
    hues: tuple[str, ...]


LIGHT = Theme(
    *("#ffffff", "#1b1f24", "#5b636d", "#e4e7eb"),
    hues=("#0072b2", "#d55e00", "#009e73", "#b8558f", "#3a9bd9", "#b87a00", "#1b1f24"),
)
DARK = Theme(
    *("#0f1318", "#e8ebef", "#9aa4b0", "#262d36"),
    hues=("#4aa8e8", "#ff8a3d", "#2fd3a2", "#e79ac6", "#9ad5fb", "#f0bd4c", "#e8ebef"),
)


@dataclass(frozen=True)
class LineStyle:
    """The style of a row's lines in every chart: hue (an index), dashes and marker."""

    name: str
    hue: int
    dashes: str
    mark: str


def styles_of(rows: Mapping[str, str]) -> dict[str, LineStyle]:
    """Return the line style of each row. `rows` maps each row to its norm, which sets the hue.

    Rows with the same norm get different dashes and, once the dashes run out, other hues.
    """
    styles: dict[str, LineStyle] = {}
    taken: set[tuple[int, str]] = set()
    for number, (row, norm) in enumerate(rows.items()):
        norm_hue = NORM_HUES.get(norm, zlib.crc32(norm.encode()) % (HUES - 1))
        dashes = [DASHES[(number + n) % len(DASHES)] for n in range(len(DASHES))]
        ways = [((norm_hue + m) % HUES, each) for m in range(HUES) for each in dashes]
        hue, dash = next((way for way in ways if way not in taken), ways[0])
        taken.add((hue, dash))
        styles[row] = LineStyle(row, hue, dash, MARKS[number % len(MARKS)])
    return styles


def row_styles(runs: Sequence[Run], rows: Iterable[str] = ()) -> dict[str, LineStyle]:
    """Return the line style of each row, chosen by the norm of its first run with a config."""
    norms = {run.key.row: run.norm for run in reversed(runs) if run.settings}
    names = rows or dict.fromkeys(run.key.row for run in runs)
    return styles_of({row: norms.get(row, row) for row in names})
