"""Jobs in which another launcher of Hydra, such as Slurm's, trains the runs of a sweep.

Hydra ends a sweep at the first job that fails. Here a failed job of a grid leaves a note in the
sweep's folder instead, so that the sweep waits for all jobs and then reports every failure.
"""

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normlab.errors import UserError
from normlab.records.files import atomic_write
from normlab.studies.process_pool import INTERRUPTED
from normlab.terminal import crash

if TYPE_CHECKING:
    from hydra.core.utils import JobReturn
    from omegaconf import DictConfig
    from submitit import Job

    from normlab.records.record import RunRecord


class FailureNotes:
    """The notes of failed jobs, each a file in the sweep's folder, which all jobs can reach."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, number: int, overrides: Sequence[str], problem: str) -> None:
        """Write the note of the job with this number in the sweep."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(self.folder / f"{number:06}.txt") as file:
            file.write("\n    ".join([" ".join(overrides), *problem.splitlines()]) + "\n")

    def print_all(self) -> int:
        """Print all notes, remove the folder if there are any, and return their number."""
        notes = [path.read_text(encoding="utf-8") for path in sorted(self.folder.glob("*.txt"))]
        if notes:
            shutil.rmtree(self.folder, ignore_errors=True)
            print(f"{len(notes)} runs failed\n" + "".join(f"  failed: {n}" for n in notes), end="")
        return len(notes)


def train_in_job(
    config: "DictConfig",
    train: "Callable[[DictConfig], RunRecord]",
    note_failure: Callable[[str], object] | None,
) -> "RunRecord | None":
    """Train a run inside a job of another launcher, and return its record.

    An error is passed to `note_failure` if this is set, and None is returned. A run that was asked
    to stop ends the process without a result, so that the sweep waits until the scheduler has
    requeued it.
    """
    from normlab.config.compose import from_hydra

    try:
        record = train(from_hydra(config))
    except Exception as error:
        if _ended_by_its_requeue(error):
            sys.exit(INTERRUPTED)
        if note_failure is None:
            raise
        note_failure(str(error) if isinstance(error, UserError) else crash(error))
        return None
    if record.outcome.status == "interrupted":
        sys.exit(INTERRUPTED)
    return record


def _ended_by_its_requeue(error: Exception) -> bool:
    """Return whether `scontrol requeue`, which submitit runs inside the job, was ended by Slurm.

    Slurm ends all processes of a job that it requeues, so the command may end before it returns.
    """
    return (
        isinstance(error, subprocess.CalledProcessError)
        and error.cmd[:2] == ["scontrol", "requeue"]
        and error.returncode in (-signal.SIGTERM, -signal.SIGKILL)
    )


@contextmanager
def submitit_jobs(notes: FailureNotes | None) -> Generator[None]:
    """Within the context, a job of submitit that ends without a result counts as a failed run.

    Such a job was cancelled or killed. submitit raises an error for it, at which Hydra would leave
    the other jobs alone in the queue. Here a job of a grid gets a note, and the job of a search
    (`notes` is None) fails like a run that raises an error. Raises UserError if jobs cannot be
    submitted.
    """
    if find_spec("submitit") is None:  # Hydra says so
        yield
        return
    from submitit import Job
    from submitit.core.utils import FailedSubmissionError, UncompletedJobError

    job_results = Job.results

    def results_or_failure(self: "Job[Any]") -> list[Any]:
        try:
            return job_results(self)
        except UncompletedJobError:
            return [_failure(self, notes)]

    Job.results = results_or_failure
    try:
        yield
    except (FailedSubmissionError, UncompletedJobError) as error:
        reason = " ".join(str(error).splitlines()[:2])
        raise UserError(f"{reason}; start the sweep again to resume") from error
    finally:
        Job.results = job_results


def _failure(job: "Job[Any]", notes: FailureNotes | None) -> "JobReturn":
    """Return the result of a job that ended without one."""
    from hydra.core.utils import JobReturn, JobStatus

    overrides, _, number, *_ = job.submission().args  # of the launcher's `__call__`
    problem = (
        f"job {job.job_id} ended without a result ({job.state}; {job.paths.folder}): start the "
        "sweep again to resume"
    )
    if notes is None:
        error = UserError(f"{' '.join(overrides)}: {problem}")
        return JobReturn(overrides, status=JobStatus.FAILED, _return_value=error)
    notes.write(number, overrides, problem)
    return JobReturn(overrides, status=JobStatus.COMPLETED)
