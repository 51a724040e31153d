"""Carrying out a queue of studies: parts of claims judged, whole seeds published."""

import math
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from normlab.commands._terminal import complain
from normlab.config.registry import CONFIG_DIR
from normlab.studies import SMOKE, rate_name, tuning_of, unchosen
from normlab.studies.costs import duration
from normlab.studies.local import Local, places
from normlab.studies.loop import carry_out, summary_lines
from normlab.studies.queue import Job, Queue
from normlab.studies.runs import Run
from normlab.studies.show import Runs

if TYPE_CHECKING:
    from normlab.claims.claim import Claim
    from normlab.claims.evidence import Endpoint
    from normlab.claims.ledger import Outcome
    from normlab.claims.runs import Runs as Evidence


class Judge:
    """Judges the parts of claims that jobs decide, by their runs and the published `results`."""

    def __init__(self, jobs: Sequence[Job], results: Path) -> None:
        self.jobs, self.results, self.configs = jobs, results, CONFIG_DIR

    def standings(self, job: Job, runs: "Evidence | None" = None) -> "list[Outcome]":
        """Return the verdicts so far on the parts that a job can decide.

        One side of such a part is among the job's rows and points, and each is there or published.
        """
        from normlab.claims.endpoint import StudyEndpoint
        from normlab.claims.ledger import standings

        runs = runs or self.runs()
        place = job.study.name, job.scale
        plan, made = runs.plan(*place), job.names
        there = made | runs.names(*place)

        def may(endpoint: "Endpoint") -> bool:
            assert isinstance(endpoint, StudyEndpoint)
            sides = [plan.may_choose({**endpoint.where, **side}) for side in endpoint.sides]
            return any(names & made for names in sides) and all(names & there for names in sides)

        return [each for each in standings(self._claims, runs, *place) if may(each.endpoint)]

    def count_undecided(self, *, analyses: bool) -> None:
        """Count the undecided parts of each job, and plan its seeds by them.

        With planned `analyses`, a job that decides no part makes only its own seeds. If fewer seeds
        count for an undecided part than are published, the analyses are planned by these.
        """
        runs = self.runs()
        for job in self.jobs:
            found = self.standings(job, runs)
            job.undecided = sum(each.open for each in found)
            counted = [each.finding.seeds for each in found if each.open]
            least = min((seeds for seeds in counted if seeds is not None), default=math.inf)
            if analyses and least < len(job.published):
                job.plan(int(least))
            if analyses and job.seeds and not found:
                job.plan(None)

    def analyze(self, job: Job) -> int:
        """Judge a job at a planned analysis and say so; return its undecided parts."""
        print(f"planned analysis at {job.counted + len(job.seeds)} seeds of {job.name}:")
        found = self.standings(job)
        print("\n".join(f"  {line}" for line in verdict_lines(found)))
        return sum(each.open for each in found)

    def runs(self) -> "Evidence":
        """Read all runs there are; a run that jobs share belongs to each of them."""
        from normlab.claims.runs import Runs

        made_for: dict[Path, set[tuple[str, str]]] = {}
        for job in self.jobs:
            for run in chain.from_iterable(job.runs.values()):
                made_for.setdefault(run.folder, set()).add((job.study.name, job.scale))
        folders = dict.fromkeys(folder.parents[1] for folder in made_for)
        there = [place for place in (self.results, *folders) if place.is_dir()]
        return Runs.read(there, root=self.configs.parent, configs=self.configs, made_for=made_for)

    @cached_property
    def _claims(self) -> "Sequence[Claim]":
        from normlab.claims.claim import load_all

        return load_all(self.configs / "claim")


def verdict_lines(found: "Sequence[Outcome]") -> list[str]:
    """Return the parts by their verdicts, one line each."""
    by: dict[str, list[str]] = {}
    for each in found:
        verdict = each.verdict + (", whatever the seeds" if each.finding.stuck else "")
        why = f" ({each.reason})" if each.reason and verdict == "not measured" else ""
        by.setdefault(verdict, []).append(f"{each.claim} {each.name}{why}")
    lines = [f"{verdict}: {', '.join(names)}" for verdict, names in by.items()]
    return lines or ["it decides no part of a claim"]


def untuned(job: Job, words: Sequence[str]) -> str | None:
    """Name the rows without a tuned learning rate though their study tunes them, else None.

    None for a smoke test and a pilot, which decide nothing, and if the command gives a rate.
    """
    study, scale = job.study, job.scale
    if scale == SMOKE or study.scale(scale).pilot or not (missing := unchosen(study, scale)):
        return None
    asked = {rate_name(run.planned.row, run.planned.point) for run in job.asked()}
    given = {word.partition("=")[0].removeprefix(f"{study.name}:") for word in words}
    found = [name for name in missing if name in asked]
    if not found or tuning_of(study, scale).key in given:
        return None
    from normlab.claims.pages import no_rate

    return f"{job.name}: {no_rate(found)}: normlab study tune {study.name} scale={scale} chooses"


class Night:
    """The jobs of a queue, carried out until all have ended or the deadline.

    Args:
        seconds: what a run takes.
        publish: the folder to which whole seeds go, None for none.
        until_decided: a job ends at the planned analysis that decides its parts.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        judge: Judge,
        *,
        seconds: Callable[[Job, Run], float] = lambda job, run: 0.0,
        publish: Path | None,
        until_decided: bool = False,
    ) -> None:
        self.jobs, self._publish_to = jobs, publish
        self.unpublished: dict[str, str] = {}
        self.published: list[Path] = []
        self.queue = Queue(
            jobs,
            ended=lambda run: run.has_ended(run.record()),
            seconds=seconds,
            analyze=judge.analyze if until_decided else None,
            whole=self._publish,
        )

    def run(self, processes: int | None, deadline: float) -> bool:
        """Carry out what has not ended; tell whether a run failed or was not published."""
        queue, found = self.queue, []
        self.publish_whole()  # of an earlier night that was killed before it could
        if queue.left() and time.monotonic() < deadline:
            asked = {run.folder for run in queue.left()}
            logs = queue.cells[0].folder.parents[1] / ".sweeps" / queue.name
            with Local(processes, logs) as runner:
                at_a_time = len(places(processes))
                shown = Runs(queue.cells, at_a_time=at_a_time, logs=runner.logs)
                print(shown.begin(later=len(queue.cells) - len(queue.done | asked)), flush=True)
                with shown:
                    found = carry_out(queue, runner, deadline=deadline, show=shown)
            found = [done for done in found if not done.interrupted]
            print("\n".join(summary_lines(found)))
        for job in [job for job in self.jobs if job.name in self.unpublished]:
            self._publish(job)
        return any(done.status for done in found) or bool(self.unpublished)

    def publish_whole(self) -> None:
        """Publish what there is of whole seeds."""
        for job in self.jobs:
            if self.queue.whole_seeds(job):
                self._publish(job)

    def summary(self, again: str) -> list[str]:
        """Say what is done and left, and the command that resumes."""
        queue, left = self.queue, self.queue.left()
        lines = [f"{len(queue.done)} runs done, {queue.made} of them now; {len(left)} left"]
        for job in self.jobs:
            seeds = " ".join(map(str, queue.whole_seeds(job)))
            lines.append(f"  {job.name}: " + (f"whole seeds {seeds}" if seeds else "no whole seed"))
        return [*lines, f"resume with: {again}"] if left or queue.failed else lines

    def _publish(self, job: Job) -> None:
        """Write the whole seeds of a job, and no other; a problem is kept, and ends no run."""
        if self._publish_to is None:
            return
        from normlab.reports.published import publish
        from normlab.reports.runs import Run as Made

        whole = self.queue.whole_seeds(job)
        runs = [run for seed in whole for run in job.runs[seed]]
        made = [Made(run.planned, run.record(), folder=run.folder) for run in runs]
        try:
            folder = publish(self._publish_to, job.study, job.scale, made, add=True)
        except (OSError, ValueError) as error:
            problem = f"{job.name} is not published: {error}; it is tried again with the next seed"
            if self.unpublished.get(job.name) != problem:
                complain(problem)
            self.unpublished[job.name] = problem
            return
        self.unpublished.pop(job.name, None)
        self.published.append(folder)
        print(f"published {job.name}: seed {' '.join(map(str, whole))}", flush=True)


def check_publishing(root: Path, jobs: Sequence[Job]) -> None:
    """Raise ValueError, before anything runs, if the runs of jobs cannot be published there."""
    from normlab.records.packed import Key
    from normlab.reports.published import check

    for job in jobs:
        asked = {
            Key(run.planned.row, run.planned.point, run.planned.seed): run.folder.parent.name
            for run in job.asked()
        }
        check(root, job.study.name, job.scale, asked)


def order(night: Night) -> list[list[str]]:
    """Return per job its undecided parts, runs, hours and worth, in the order it is begun."""
    queue = night.queue
    return [
        [
            job.name,
            str(job.undecided),
            str(sum(run.folder not in queue.done for run in job.asked())),
            duration(3600 * queue.hours_to_analysis(job)),
            f"{queue.worth(job):.2g}" if queue.hours_to_analysis(job) else "-",
        ]
        for job in sorted(queue.jobs, key=queue.worth, reverse=True)
    ]
