"""A table as comma-separated values (CSV), with more digits than in the other formats."""

import csv
import io

from normlab.records.labels import in_sheet
from normlab.reports.tables.score_table import ScoreTable

_CSV = (
    "setting",
    "at",
    "score",
    "mean",
    "sd",
    "n",
    "seeds",
    "difference",
    "low",
    "high",
    "p",
    "pairs",
    "paired_seeds",
    "article",
    "best",
    "outcome",
    "stability",
)


def comma_separated(table: ScoreTable) -> str:
    """Return a table as CSV, one line per row and score."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_CSV)
    for row, entries, _ in table.lines:
        for entry in entries:
            summary, gap = entry.summary, entry.difference
            cells = [
                *(row.name, row.point, entry.score),
                *(
                    ("", "", 0)
                    if summary is None
                    else (summary.mean, _rounded(summary.sd), summary.n)
                ),
                " ".join(map(str, entry.scores)),
                *(_rounded(x) for x in (gap[:1] + gap[3:] if gap else (entry.bare, None, None))),
                *(_rounded(entry.p), len(entry.pairs) or "", " ".join(map(str, entry.pairs))),
                "" if entry.article_value is None else entry.article_value,
                *(int(entry.best), row.outcome, row.stability),
            ]
            writer.writerow(map(in_sheet, cells))
    return out.getvalue()


def _rounded(value: float | None) -> object:
    """Round a value to 12 significant digits, because libraries differ beyond that."""
    return "" if value is None else float(f"{value:.12g}")
