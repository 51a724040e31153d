"""One run as reports see it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from normlab.records.record import RunRecord
from normlab.studies import Planned


@dataclass(frozen=True)
class Absent:
    """What a table calls runs without a record: `alone` for a whole row, `among` the others."""

    alone: str
    among: str


NOT_MADE = Absent("no run", "not run")
"""Of a study, which plans its runs."""
NOT_ENDED = Absent("not ended", "not ended")
"""Of a folder of runs: still going on, or stopped."""


@dataclass(frozen=True)
class Evidence:
    """What was planned and what came of it.

    `record` is None for a run without one, of which `state` says why, and `name`, `config` and
    `now`, what it does, are told as far as is known. `place` is the address of the record from the
    page; `rows` are those kept of the run, which may be none. `folder` is where its translations
    lie, if it has any.
    """

    planned: Planned
    record: RunRecord | None = None
    place: str | None = None
    rows: Sequence[dict[str, Any]] = ()
    state: str = NOT_MADE.alone
    config: Mapping[str, Any] | None = None
    name: str = ""
    now: Mapping[str, Any] | None = None
    folder: Path | None = None

    @property
    def outcome(self) -> str:
        """Return how the run ended, or why it has no record."""
        return self.state if self.record is None else self.record.outcome.status

    @property
    def settings(self) -> Mapping[str, Any] | None:
        """Return the config, None of a run that was not made."""
        return self.config if self.record is None else self.record.config
