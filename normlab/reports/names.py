"""Names for readers: the user's own for rows, scores and axes, and full names of norms.

`normlab compare` and `normlab report` call a row by the user's name. LaTeX and figures, which go
into papers, also have the full names of norms: `Layer norm` instead of `ln`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from normlab.config.registry import option_title
from normlab.errors import UserError
from normlab.reports.arrangement import Arrangement

Names = Mapping[str, str]
"""The user's names, by a row or its norm, a score, or the config key of an axis."""


def chosen_names(words: Iterable[str], tables: Sequence[Arrangement]) -> dict[str, str]:
    """Return the names in `--names NAME=TEXT ...`; UserError if no table has such a NAME."""
    rows = [row for table in tables for row in table.study.rows]
    norms = [norm for row in rows for norm in _norms(row)[0]]
    others = [name for each in tables for name in (*each.study.columns, *each.study.grid)]
    known = dict.fromkeys([*norms, *rows, *others])
    names: dict[str, str] = {}
    for word in words:
        ends = [place.start() for place in re.finditer("=", word)]  # rows may contain `=`
        name = next((word[:end] for end in reversed(ends) if word[:end] in known), None)
        if name is None or not (text := word[len(name) + 1 :].strip()):
            kinds = "a row or its norm, a score or the key of an axis"
            raise UserError(
                f"--names {word}: expected NAME=TEXT, where NAME is {kinds}; choose from "
                f"{'; '.join(known)}"
            )
        names[name] = text
    return names


def renamed(table: Arrangement, names: Names, *, full: bool = False) -> Arrangement:
    """Return the runs of a table with the user's names of rows.

    With `full`, a norm without such a name has its full name. Raises UserError if two rows would
    have the same name.
    """
    study, scale, runs = table
    rows = {row: _row_name(row, names, full=full) for row in study.rows}
    for row, name in rows.items():
        if same := [other for other in rows if rows[other] == name and other != row]:
            raise UserError(f"--names: the rows {row} and {same[0]} would both be called {name}")
    study = replace(
        study,
        rows={rows[row]: settings for row, settings in study.rows.items()},
        figures={rows.get(row, row): values for row, values in study.figures.items()},
    )
    of_rows = [replace(run, key=run.key._replace(row=rows[run.key.row])) for run in runs]
    return Arrangement(study, scale, of_rows)


def _row_name(row: str, names: Names, *, full: bool) -> str:
    """Return a row's name, or the row with other names of its norms."""
    norms, rest = _norms(row)
    chosen = [names.get(norm) or (option_title("norm", norm) if full else norm) for norm in norms]
    between = "+" if chosen == norms else " + "
    return names.get(row) or between.join(chosen) + rest


def _norms(row: str) -> tuple[list[str], str]:
    """Split a row, such as `bn+ln pre, batch size 8`, into its norms and the rest."""
    first = re.split("[ ,]", row)[0]
    return first.split("+"), row[len(first) :]
