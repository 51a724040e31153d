"""What the studies of a queue decide: undecided parts of claims, and what more seeds would show."""

import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from normlab.config.registry import CONFIG_DIR
from normlab.studies import SMOKE, rate_name, tuning_of, unchosen
from normlab.studies.queue import Job

if TYPE_CHECKING:
    from normlab.claims.asked import StudyEndpoint
    from normlab.claims.claim import Claim
    from normlab.claims.ledger import Standing
    from normlab.claims.runs import Runs


class Judge:
    """Judges the parts that a job decides, by published records and the runs of the jobs.

    `results` is the folder of published studies, `configs` that of studies and claims.
    """

    def __init__(self, jobs: Sequence[Job], results: Path, configs: Path | None = None) -> None:
        self.jobs, self.results = jobs, results
        self.configs = CONFIG_DIR if configs is None else configs

    def standings(self, job: Job, runs: "Runs | None" = None) -> "list[Standing]":
        """Return the verdicts so far on the parts that a job can decide.

        Such a part has one side among the job's rows and points, and each side there or published.
        """
        from normlab.claims.ledger import standings

        runs = runs or self.runs()
        place = job.study.name, job.scale
        plan, made = runs.plan(*place), job.names
        there = made | plan.names_of(runs.of_study(*place).records)

        def may(endpoint: "StudyEndpoint") -> bool:
            sides = [plan.may_choose({**endpoint.where, **side}) for side in endpoint.sides]
            return any(names & made for names in sides) and all(names & there for names in sides)

        return [each for each in standings(self._claims, runs, *place) if may(each.endpoint)]

    def count_undecided(self, jobs: Sequence[Job], runs: "Runs", *, analyses: bool) -> None:
        """Count the undecided parts of each job.

        With planned `analyses`, a job that decides none makes only its own seeds; if fewer seeds
        count for an undecided part than are published, the analyses are planned by these.
        """
        for job in jobs:
            found = self.standings(job, runs)
            job.undecided = sum(each.open for each in found)
            counted = [each.seeds for each in found if each.open and each.seeds is not None]
            if analyses and counted and min(counted) < len(job.published):
                job.recount(min(counted))
            if analyses and job.seeds and not found:
                job.without_analyses()

    def analyze(self, job: Job) -> int:
        """Judge a job at a planned analysis and say so; return its undecided parts."""
        found = self.standings(job)
        print(f"planned analysis at {job.counted + len(job.seeds)} seeds of {job.name}:")
        by: dict[str, list[str]] = {}
        for each in found:
            verdict = f"{each.verdict}, whatever the seeds" if each.stuck else each.verdict
            why = f" ({each.reason})" if each.reason and each.verdict == "not measured" else ""
            by.setdefault(verdict, []).append(f"{each.name}{why}")
        for verdict, names in by.items():
            print(f"  {verdict}: {', '.join(names)}")
        if not by:
            print("  it decides no part of a claim")
        return sum(each.open for each in found)

    def runs(self) -> "Runs":
        """Read all runs there are; a run that jobs share belongs to each of them."""
        from normlab.claims.runs import Runs

        made_for: dict[Path, set[tuple[str, str]]] = {}
        folders: dict[Path, None] = {}
        for job in self.jobs:
            for run in (run for runs in job.runs.values() for run in runs):
                made_for.setdefault(run.folder, set()).add((job.study.name, job.scale))
                folders[run.folder.parents[1]] = None
        places = [place for place in (self.results, *folders) if place.is_dir()]
        return Runs.read(places, root=self.configs.parent, configs=self.configs, made_for=made_for)

    @cached_property
    def _claims(self) -> "Sequence[Claim]":
        from normlab.claims.claim import load_all

        return load_all(self.configs / "claim")


def visible_lines(judge: Judge, job: Job, runs: "Runs") -> list[str]:
    """Say of each part that a job decides the smallest difference that its analyses would show."""
    from normlab.claims.contrast import Contrast
    from normlab.claims.judge import figures
    from normlab.claims.ledger import visible

    scales = [job.scale, *(scale for scale in job.study.scales if scale != job.scale)]
    lines: list[str] = []
    for each in judge.standings(job, runs):
        endpoint = each.endpoint
        start = f"part {each.name} ({each.verdict}): "
        if not isinstance(endpoint, Contrast):
            lines.append(f"{start}decided by {endpoint.kind}, not by a difference")
            continue
        found = visible(endpoint, runs, scales)
        if found is None:
            lines.append(f"{start}spread unknown before two seeds of both sides that differ")
            continue
        write = math.exp if endpoint.ratio else float
        shown = ", ".join(
            f"{figures(write(value))[0]} with {seeds} seeds"
            for seeds, value in found.by_look.items()
        )
        kind = "a factor of " if endpoint.ratio else ""
        lines.append(
            f"{start}{kind}{shown} would show at 80 % power (margin {endpoint.margin:g}; by the "
            f"spread of {found.seeds} seeds at scale={found.scale})"
        )
    return lines


def untuned(job: Job, words: Sequence[str]) -> str | None:
    """Say which rows have no learning rate of their own though their study tunes them, else None.

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
    from normlab.claims.markdown import no_rate

    return (
        f"{job.name}: {no_rate(found)}; its sides are not tuned alike; "
        f"normlab study tune {study.name} scale={scale} chooses"
    )
