"""Names for readers: the user's names for rows, scores and axes, and full names of norms.

`normlab compare` and `normlab report` use the user's names. LaTeX tables and figures, which go into
papers, also use the full names of norms: `Layer norm` instead of `ln`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from normlab.config.registry import option_title, options
from normlab.errors import UserError
from normlab.reports.arrangement.arrangement import Arrangement
from normlab.reports.arrangement.row_names import RowName

Names = Mapping[str, str]
"""The user's names, keyed by a row or its norm, a score, or the config key of an axis."""


def chosen_names(words: Sequence[str], tables: Sequence[Arrangement]) -> dict[str, str]:
    """Return the names in `--names NAME=TEXT ...`.

    Raises UserError for a NAME that is neither in the tables nor a norm. A norm need not be in the
    tables, because its runs may not have started.
    """
    if not words:
        return {}
    rows = [row for table in tables for row in table.rows]
    norms = [norm for table in tables for row in table.rows.values() for norm in row.norms]
    others = [name for each in tables for name in (*each.columns, *each.axes)]
    known = dict.fromkeys([*norms, *rows, *others])
    accepted = {*known, *(option.name for option in options("norm"))}
    names: dict[str, str] = {}
    for word in words:
        ends = [place.start() for place in re.finditer("=", word)]  # rows may contain `=`
        name = next((word[:end] for end in reversed(ends) if word[:end] in accepted), None)
        if name is None or not (text := word[len(name) + 1 :].strip()):
            kinds = "a row or its norm, a score or the key of an axis"
            raise UserError(
                f"--names {word} must have the form NAME=TEXT, where NAME is {kinds}; choose from "
                f"{'; '.join(known)}"
            )
        names[name] = text
    return names


def with_row_names(table: Arrangement, names: Names, *, full: bool = False) -> Arrangement:
    """Return a table's arrangement with the user's names for rows.

    With `full`, norms that the user has not renamed get their full names. Raises UserError if two
    rows would have the same name.
    """
    row_names = [_row_name(row, names, full=full) for row in table.rows.values()]
    rows = {row: name.text for row, name in zip(table.rows, row_names, strict=True)}
    for row, name in rows.items():
        if same := [other for other in rows if rows[other] == name and other != row]:
            raise UserError(
                f"--names would give the rows {row} and {same[0]} the same name, {name}"
            )
    return replace(
        table,
        rows={name.text: name for name in row_names},
        article={rows.get(row, row): values for row, values in table.article.items()},
        runs=[replace(run, key=run.key._replace(row=rows[run.key.row])) for run in table.runs],
    )


def _row_name(row: RowName, names: Names, *, full: bool) -> RowName:
    """Return the user's name for a row or, if there is none, its name with the norms renamed."""
    if chosen := names.get(row.text):
        return replace(row, chosen=chosen)
    shown = [
        names.get(norm) or (option_title("norm", norm) if full and before == norm else before)
        for norm, before in zip(row.norms, row.shown or row.norms, strict=True)
    ]
    return replace(row, shown=tuple(shown))
