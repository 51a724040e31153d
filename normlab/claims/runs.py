"""The evidence that a ledger is made from: records by their study, timings, outcomes of checks."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from normlab.claims.evidence import Evidence
from normlab.claims.membership import Plan
from normlab.claims.timings import Timings, read_timings, report_paths
from normlab.records.record import RunRecord
from normlab.records.selection import Selection
from normlab.records.store import RunStore
from normlab.studies import load_study

_RECORDS = "records"  # of a published study
_Copy = tuple[str, str]  # a run id, and what made this copy of it


@dataclass(frozen=True)
class Runs:
    """Records and where each lies, what was timed, and what checks found.

    A run that two states of the code made is there as two copies. `published` names the studies and
    scales that a copy is published with: it lies in `<study>/<scale>/records`. With pilots alone it
    belongs to no other scale of the study. `damaged` says what could not be read. `configs` is the
    folder of the studies.
    """

    configs: Path
    records: Sequence[RunRecord] = ()
    folders: Mapping[_Copy, str] = field(default_factory=dict)
    published: Mapping[_Copy, Collection[tuple[str, str]]] = field(default_factory=dict)
    damaged: Sequence[str] = ()
    timings: Sequence[Timings] = ()
    computed: Mapping[str, Sequence[Evidence]] = field(default_factory=dict)

    @classmethod
    def read(
        cls,
        places: Iterable[Path],
        *,
        root: Path,
        configs: Path,
        computed: Mapping[str, Sequence[Evidence]] | None = None,
        made_for: Mapping[Path, Collection[tuple[str, str]]] | None = None,
    ) -> "Runs":
        """Read all records below some folders; their own are named relative to `root` if there.

        `made_for` names the studies and scales that a folder's run is made for, as if published;
        of the places of such folders only these are read.
        A run found twice with the same scores, such as the committed copy of one, counts once.
        """
        first: dict[str, RunRecord] = {}
        found: dict[_Copy, RunRecord] = {}
        twice: list[RunRecord] = []
        folders: dict[_Copy, str] = {}
        published: dict[_Copy, set[tuple[str, str]]] = {}
        damaged: list[str] = []
        timings: list[Timings] = []
        own = {folder.parents[1] for folder in made_for or ()}
        for place in places:
            store, top = RunStore(place), _relative(place, root)
            for report in report_paths(place):
                try:
                    timings.append(read_timings(place / report, named=(top / report).as_posix()))
                except ValueError as error:
                    damaged.append(str(error))
            for folder, record in store.entries():
                if place in own and folder not in (made_for or ()):
                    continue
                copy = _copy(record)
                known = first.setdefault(record.run_id, record)
                if known.scores != record.scores:
                    twice.append(record)
                    damaged.append(
                        f"{folder}: the same run as in {folders[_copy(known)]}, with other "
                        "scores, so neither counts; remove one of the two"
                    )
                else:
                    found.setdefault(copy, record)
                within = folder.relative_to(place)
                folders.setdefault(copy, (top / within).as_posix())
                studies = published.setdefault(copy, set())
                studies.update((made_for or {}).get(folder, ()))
                if within.parts[2:3] == (_RECORDS,):
                    studies.add((within.parts[0], within.parts[1]))
            damaged += [message for _, message in store.damaged]
        records = [*found.values(), *twice]
        return cls(configs, records, folders, published, damaged, timings, computed or {})

    def folder(self, record: RunRecord) -> str:
        """Return where a record lies, or its run id where it lies nowhere."""
        return self.folders.get(_copy(record), record.run_id)

    def plan(self, study: str, scale: str) -> Plan:
        """Return what a study plans at a scale; raises `ValueError` for one that there is not."""
        if (study, scale) not in self._plans:
            self._plans[study, scale] = Plan(load_study(study, self.configs), scale)
        return self._plans[study, scale]

    def of_study(self, study: str, scale: str) -> Selection:
        """Return the records of a study at a scale, to choose from."""
        if (study, scale) not in self._selections:
            plan = self.plan(study, scale)
            own = [record for record in self.records if self._belongs(record, plan)]
            self._selections[study, scale] = Selection(_without_copies(own))
        return self._selections[study, scale]

    def seeds_made(self, study: str, scale: str) -> frozenset[int]:
        """Return the seeds of which a run of a study was made, for whatever study."""
        if (study, scale) not in self._seeds_made:
            plan = self.plan(study, scale)
            held = (record.seed for record in self.records if plan.holds(record, (study,)))
            self._seeds_made[study, scale] = frozenset(held)
        return self._seeds_made[study, scale]

    def _belongs(self, record: RunRecord, plan: Plan) -> bool:
        places = self.published.get(_copy(record), ())
        own = plan.study.scales
        scales = {scale for name, scale in places if name == plan.study.name and scale in own}
        if scales and not plan.scale.pilot and all(own[scale].pilot for scale in scales):
            return False
        return plan.holds(record, {name for name, _ in places})

    @cached_property
    def _plans(self) -> dict[tuple[str, str], Plan]:
        return {}

    @cached_property
    def _seeds_made(self) -> dict[tuple[str, str], frozenset[int]]:
        return {}

    @cached_property
    def _selections(self) -> dict[tuple[str, str], Selection]:
        return {}


def _copy(record: RunRecord) -> _Copy:
    return record.run_id, repr((record.made_by, record.environment.get("commit")))


def _without_copies(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the first of all copies of a run that have the same scores."""
    found: list[RunRecord] = []
    by_run: dict[str, RunRecord] = {}
    for record in records:
        known = by_run.setdefault(record.run_id, record)
        if known is record or known.scores != record.scores:
            found.append(record)
    return found


def _relative(place: Path, root: Path) -> Path:
    resolved = place.resolve()
    inside = resolved.is_relative_to(root.resolve())
    return resolved.relative_to(root.resolve()) if inside else place
