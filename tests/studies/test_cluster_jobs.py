"""Jobs of another launcher: failures are noted, and a job that is requeued has not failed."""

import signal
import subprocess
from contextlib import nullcontext

import pytest

from normlab.errors import UserError
from normlab.studies.cluster_jobs import FailureNotes, train_in_job


@pytest.fixture(autouse=True)
def any_config(monkeypatch):
    monkeypatch.setattr("normlab.config.compose.from_hydra", lambda config: config)


def raises(error):
    def train(_):
        raise error

    return train


def test_a_job_notes_a_traceback_only_for_a_bug():
    for error, traced in ((UserError("set data_dir"), False), (ValueError("a bug"), True)):
        noted = []
        assert train_in_job({}, raises(error), noted.append) is None
        first, *rest = noted[0].splitlines()
        assert str(error) in first and any("Traceback" in line for line in rest) is traced


@pytest.mark.parametrize(("status", "requeued"), [(-signal.SIGTERM, True), (1, False)])
def test_a_job_that_slurm_ends_while_it_is_requeued_has_not_failed(status, requeued):
    error = subprocess.CalledProcessError(status, ["scontrol", "requeue", "1_0"])
    noted = []
    with pytest.raises(SystemExit) if requeued else nullcontext():
        train_in_job({}, raises(error), noted.append)
    assert bool(noted) is not requeued


def test_notes_are_printed_once_in_the_order_of_the_jobs(tmp_path, capsys):
    notes = FailureNotes(tmp_path / "sweep")
    assert notes.print_all() == 0
    notes.write(11, ["norm=bn", "seed=1"], "a bug\nin a norm")
    notes.write(2, ["norm=ln"], "set data_dir")
    assert notes.print_all() == 2 and notes.print_all() == 0
    assert capsys.readouterr().out.splitlines() == [
        "2 runs failed",
        *("  failed: norm=ln", "    set data_dir"),
        *("  failed: norm=bn seed=1", "    a bug", "    in a norm"),
    ]
    assert not list(tmp_path.iterdir())
