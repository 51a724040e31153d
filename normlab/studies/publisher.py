"""Publishes the runs of studies, seed by seed, while other runs are executed."""

from collections.abc import Callable, Sequence
from pathlib import Path

from normlab.errors import UserError
from normlab.studies.job import Job


class Publisher:
    """Publishes complete seeds, by calling a function that returns the folder that it wrote.

    If the function is None, nothing is published. If publishing fails, the runs continue, and the
    message is kept in `problems`, keyed by study and scale. `on_line` is called with a line for
    each change, and `on_problem` with a line for each problem.
    """

    def __init__(
        self,
        publish: Callable[[Job, Sequence[int]], Path] | None,
        *,
        on_line: Callable[[str], object],
        on_problem: Callable[[str], object],
    ) -> None:
        self._publish, self.on_line, self.on_problem = publish, on_line, on_problem
        self.problems, self.folders = dict[str, str](), dict[Path, None]()

    def publish(self, job: Job, seeds: Sequence[int]) -> None:
        """Publish the runs of a job with these seeds."""
        if self._publish is None or not seeds:
            return
        try:
            folder = self._publish(job, seeds)
        except (OSError, UserError) as error:
            problem = (
                f"{job.name} is not published: {error}; publishing is retried after the next seed"
            )
            if self.problems.get(job.name) != problem:
                self.on_problem(problem)
            self.problems[job.name] = problem
            return
        self.problems.pop(job.name, None)
        self.folders[folder] = None
        self.on_line(f"published {job.name}: seed {' '.join(map(str, seeds))}")
