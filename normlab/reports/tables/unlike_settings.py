"""Settings in which rows differ although their names do not say so, and the notes on them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from normlab.records.grouping import grouped
from normlab.records.pairs import ROW_KEYS, Experiment
from normlab.reports.arrangement.settings import Settings, differing_settings
from normlab.reports.legend import About, Note
from normlab.reports.setting_names import setting


@dataclass(frozen=True)
class UnlikeSetting:
    """A config key in which rows differ, and the rows with each of its values."""

    key: str
    rows: Mapping[str, Sequence[str]]

    @property
    def note(self) -> Note:
        values = [f"{value} ({', '.join(rows)})" for value, rows in self.rows.items()]
        text = f"NOT ALIKE: rows differ in {self.key}: {'; '.join(values)}"
        return Note(text, f"rows differ in {setting(self.key)}", About.NOT_ALIKE)


def unlike_settings(
    rows: Mapping[str, Experiment],
    axes: Sequence[str] = (),
    row_keys: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, UnlikeSetting]:
    """Return the settings in which rows differ, keyed by config key.

    Keys that the `axes` show are left out, and so are keys that are part of every row's name, which
    `row_keys` lists for each row.
    """
    differing = differing_settings([Settings.of_record(row.records[0]) for row in rows.values()])
    below = (*ROW_KEYS, *(f"{axis}." for axis in axes))
    unlike: dict[str, UnlikeSetting] = {}
    for key, values in differing.items():
        in_names = all(key in (row_keys or {}).get(row, ()) for row in rows)
        if not in_names and not f"{key}.".startswith(below):
            by_value = grouped(zip(map(str, values), rows, strict=True))
            unlike[key] = UnlikeSetting(key, by_value)
    return unlike
