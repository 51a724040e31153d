"""One run of a published study as reports see it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from normlab.records.record import RunRecord
from normlab.studies import Planned


@dataclass(frozen=True)
class Evidence:
    """What was planned and what came of it.

    `record` is None for a run that was not made, `place` the path of its file, relative to the
    folder of the study; `rows` are those published of the run, which may be none.
    """

    planned: Planned
    record: RunRecord | None = None
    place: str | None = None
    rows: Sequence[dict[str, Any]] = ()
