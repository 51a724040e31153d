"""Judges parts of claims and publishes whole seeds while a queue of studies runs."""

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from normlab.commands._terminal import complain
from normlab.config.registry import CONFIG_DIR
from normlab.studies import SMOKE, rate_name, tuning_of, unchosen
from normlab.studies.queue import Job

if TYPE_CHECKING:
    from normlab.claims.claim import Claim
    from normlab.claims.evidence import Runs as Evidence
    from normlab.claims.ledger import Outcome
    from normlab.claims.seeds import Endpoint


class Judge:
    """Judges the claim parts that the jobs can decide, from their runs and published `results`."""

    def __init__(self, jobs: Sequence[Job], results: Path) -> None:
        self.jobs, self.results = jobs, results

    def standings(self, job: Job, runs: "Evidence | None" = None) -> "list[Outcome]":
        """Return the verdicts so far on the parts of claims that a job can decide.

        The job runs at least one side of such a part; every other side is in the job or published.
        """
        from normlab.claims.ledger import standings
        from normlab.claims.seeds import StudyEndpoint

        runs = runs or self.runs()
        place = job.study.name, job.scale
        plan, made = runs.plan(*place), job.names
        there = made | runs.names(*place)

        def may(endpoint: "Endpoint") -> bool:
            assert isinstance(endpoint, StudyEndpoint)
            sides = [plan.may_choose({**endpoint.where, **side}) for side in endpoint.sides]
            return any(names & made for names in sides) and all(names & there for names in sides)

        return [each for each in standings(self._claims, runs, *place) if may(each.endpoint)]

    def count_undecided(self) -> None:
        """Count each job's undecided parts, and plan its seeds accordingly.

        A job that decides no part runs only its own seeds. If fewer seeds count for an undecided
        part than are published, its analyses are planned from that number.
        """
        runs = self.runs()
        for job in self.jobs:
            found = self.standings(job, runs)
            job.undecided = sum(each.open for each in found)
            counted = [each.finding.seeds for each in found if each.open]
            least = min((seeds for seeds in counted if seeds is not None), default=math.inf)
            if least < len(job.published):
                job.plan(int(least))
            if job.seeds and not found:
                job.plan(None)

    def analyze(self, job: Job) -> int:
        """Judge a job at a planned analysis, print the verdicts, and count its undecided parts."""
        print(f"planned analysis at {job.counted + len(job.seeds)} seeds of {job.name}:")
        found = self.standings(job)
        print("\n".join(f"  {line}" for line in verdict_lines(found)))
        return sum(each.open for each in found)

    def runs(self) -> "Evidence":
        """Read all existing runs; a run that jobs share belongs to each of them."""
        from normlab.claims.evidence import Made, Runs

        found = Runs.read(self.results, CONFIG_DIR)
        for job in self.jobs:
            for run in chain.from_iterable(job.runs.values()):
                if (record := run.record(found.damaged.append)) is not None:
                    found.add((job.study.name, job.scale), Made(record, str(run.folder)))
        return found

    @cached_property
    def _claims(self) -> "Sequence[Claim]":
        from normlab.claims.claim import load_all

        return load_all(CONFIG_DIR / "claim")


def verdict_lines(found: "Sequence[Outcome]") -> list[str]:
    """Return the parts grouped by verdict, one line per verdict."""
    by: dict[str, list[str]] = {}
    for each in found:
        why = f" ({each.reason})" if each.reason and each.verdict == "not measured" else ""
        by.setdefault(each.verdict, []).append(f"{each.claim} {each.name}{why}")
    lines = [f"{verdict}: {', '.join(names)}" for verdict, names in by.items()]
    return lines or ["it decides no part of a claim"]


class Publisher:
    """Publishes whole seeds below `root` (None: nowhere); problems are kept, and runs continue."""

    def __init__(self, root: Path | None, jobs: Sequence[Job]) -> None:
        """Raise ValueError, before anything runs, if the jobs' runs cannot be published there."""
        from normlab.records.packed import Key
        from normlab.reports.published import check

        self.root, self.problems, self.folders = root, dict[str, str](), dict[Path, None]()
        if root is not None:
            for job in jobs:
                asked = {Key(*run.planned[:3]): run.folder.parent.name for run in job.asked()}
                check(root, job.study.name, job.scale, asked)

    def publish(self, job: Job, seeds: Sequence[int]) -> None:
        """Publish the runs of a job with these seeds."""
        from normlab.reports.gather import Run as Made
        from normlab.reports.published import publish

        if self.root is None or not seeds:
            return
        runs = [run for seed in seeds for run in job.runs[seed]]
        made = [Made(run.planned, run.record(), folder=run.folder) for run in runs]
        try:
            folder = publish(self.root, job.study, job.scale, made, add=True)
        except (OSError, ValueError) as error:
            problem = f"{job.name} is not published: {error}; the next seed tries again"
            if self.problems.get(job.name) != problem:
                complain(problem)
            self.problems[job.name] = problem
            return
        self.problems.pop(job.name, None)
        self.folders[folder] = None
        print(f"published {job.name}: seed {' '.join(map(str, seeds))}", flush=True)


def untuned(job: Job, words: Sequence[str]) -> str | None:
    """Return a warning if rows lack the learning rate that their study tunes, else None.

    A smoke test or a pilot needs none, since it decides nothing; nor a command that gives a rate.
    """
    study, scale = job.study, job.scale
    if scale == SMOKE or study.scale(scale).pilot or not (missing := unchosen(study, scale)):
        return None
    asked = {rate_name(run.planned.row, run.planned.point) for run in job.asked()}
    given = {word.partition("=")[0].removeprefix(f"{study.name}:") for word in words}
    found = [name for name in missing if name in asked]
    if not found or tuning_of(study, scale).key in given:
        return None
    chooses = f"choose it with normlab study tune {study.name} scale={scale}"
    return f"{job.name}: no learning rate is chosen for {', '.join(found)}: {chooses}"


def print_tables(jobs: Sequence[Job], results: Path) -> None:
    """Print each study's table from the runs that have ended and the published seeds that count."""
    from normlab.commands.compare import show_table
    from normlab.records.packed import pack
    from normlab.reports.gather import Run as Made
    from normlab.reports.study_table import build
    from normlab.studies import Planned

    for job in jobs:
        there = pack(results / job.study.name / job.scale).records if job.published else {}
        runs = [
            Made(Planned(*key, ()), record)
            for key, record in there.items()
            if key.seed in job.published and rate_name(key.row, key.point) in job.names
        ]
        runs += [Made(run.planned, run.record()) for run in job.asked()]
        print()
        show_table(build(job.study, job.scale, runs), job.study.baseline)
