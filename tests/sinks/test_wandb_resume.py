"""A run that goes on: W&B has each of its steps once, online and offline, also after a kill."""

import pytest

from normlab.records.record import Outcome
from normlab.train.sinks import Jsonl
from tests.sinks.offline_file import read
from tests.sinks.runs import info, record, scores
from tests.sinks.wandb_client import files, sink
from tests.sinks.wandb_server import Server

pytestmark = pytest.mark.usefixtures("nobody_is_logged_in")

KILLED = b":W&B\xe1\xbe\x00"  # all that W&B leaves of a short run that is killed: a header


def train(folder, mode, steps, *, resumed=0, ends=False, loss=0.0):
    """Train to the last of the steps, a validation at every 20th; `ends` with a record."""
    jsonl = Jsonl()
    jsonl.open(info(folder, resumed_step=resumed))
    wandb = sink(mode, seconds=20.0)
    line = wandb.open(info(folder, resumed_step=resumed))
    for step in steps:
        row, found = {"step": step, "train/loss": 100 / step + loss}, scores(float(step), 50 / step)
        for each in (jsonl, wandb):
            each.log(row)
            if step % 20 == 0:
                each.log({"step": step}, found)
    outcome = Outcome("finished", steps[-1])
    final = record(outcome=outcome, stability={}, scores=scores(20.0, 2.5)) if ends else None
    jsonl.close(final)
    wandb.close(final)
    return line


def offline_files(folder):
    """Wait until W&B's service has written all, and return the files in the order of time."""
    return [(path, read(path)) for path in files(folder)]


def curve(rows):
    return [(row["_step"], row["train/loss"]) for row in rows if "train/loss" in row]


@pytest.mark.parametrize("killed", [False, True])
def test_a_run_resumed_offline_has_all_rows_in_one_file(tmp_path, killed):
    train(tmp_path, "offline", [10, 20, 30, 40])
    ((path, _),) = offline_files(tmp_path)
    if killed:
        path.write_bytes(KILLED)
    train(tmp_path, "offline", [30, 40, 50, 60], resumed=20, ends=True, loss=0.5)
    ((_, second),) = offline_files(tmp_path)
    assert second.run.run_id in path.name
    assert [step for step, _ in curve(second.history)] == [10, 20, 30, 40, 50, 60]
    assert second.history[1]["valid/bleu"] == 20.0
    assert second.summary["valid/bleu"] == {"min": 20, "max": 60}
    assert second.summary["valid/loss"] == {"min": 50 / 60, "max": 2.5}


def test_online_the_server_has_each_step_once(tmp_path, wandb_server: Server, capfd):
    train(tmp_path, "online", [10, 20, 30, 40])
    train(tmp_path, "online", [30, 40, 50, 60], resumed=20, ends=True, loss=0.5)
    (run,) = wandb_server.runs.values()
    assert [step for step, _ in curve(run.history)] == [10, 20, 30, 40, 50, 60]
    assert run.exit_code == 0
    assert run.summary["valid/bleu"] == {"min": 20, "max": 60}
    assert run.summary["outcome"] == "finished"
    assert "monotonically" not in capfd.readouterr().err


def test_online_after_offline_the_server_gets_all(tmp_path, wandb_server: Server):
    train(tmp_path, "offline", [10, 20, 30])
    line = train(tmp_path, "online", [30, 40], resumed=20, ends=True)
    assert line is not None
    assert wandb_server.url in line
    (run,) = wandb_server.runs.values()
    assert [step for step, _ in curve(run.history)] == [10, 20, 30, 40]
    assert not files(tmp_path)
