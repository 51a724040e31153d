"""Publishing the runs of studies, seed by seed, while further runs are executed."""

from collections.abc import Callable, Sequence
from pathlib import Path

from normlab.errors import UserError
from normlab.records.packed import Key
from normlab.reports.published import check, check_unchanged, publish
from normlab.reports.runs import Run
from normlab.studies.queue import Job
from normlab.studies.study_runs import StudyRun


class Publisher:
    """Publishes whole seeds below `root` (None: nowhere).

    A problem is recorded in `problems`, by study and scale, and runs continue. Published runs never
    change, unless `replaces` is set. `on_line` gets a line for each change, `on_problem` a line for
    each problem.
    """

    def __init__(
        self,
        root: Path | None,
        jobs: Sequence[Job],
        *,
        replaces: bool,
        making: bool,
        on_line: Callable[[str], object],
        on_problem: Callable[[str], object],
    ) -> None:
        """Raise UserError, before anything runs, if the jobs' runs cannot be published there.

        With `making`, the jobs' unfinished runs are still to be made.
        """
        self.root, self.on_line, self.on_problem = root, on_line, on_problem
        self.problems, self.folders = dict[str, str](), dict[Path, None]()
        self.replaces = replaces
        if root is not None:
            for job in jobs:
                experiments = {Key(*run.planned[:3]): run.folder.parent.name for run in job.runs}
                runs = check(root, job.study.name, job.scale, experiments)
                if not replaces:
                    check_unchanged(runs, map(run_of_study, job.runs), making=making)

    def publish(self, job: Job, seeds: Sequence[int]) -> None:
        """Publish the runs of a job with these seeds."""
        if self.root is None or not seeds:
            return
        runs = [run_of_study(run) for seed in seeds for run in job.by_seed[seed]]
        replacing = self.on_line if self.replaces else None
        try:
            folder = publish(self.root, job.study, job.scale, runs, replacing=replacing)
        except (OSError, UserError) as error:
            problem = f"{job.name} is not published: {error}; the next seed will try again"
            if self.problems.get(job.name) != problem:
                self.on_problem(problem)
            self.problems[job.name] = problem
            return
        self.problems.pop(job.name, None)
        self.folders[folder] = None
        self.on_line(f"published {job.name}: seed {' '.join(map(str, seeds))}")


def run_of_study(run: StudyRun) -> Run:
    """Return a study's run in the form that tables and pages read; no record until it has ended."""
    record = run.record()
    ended = record if run.has_ended(record) else None
    return Run(Key(*run.planned[:3]), ended, folder=run.folder)
