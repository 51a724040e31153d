"""Runs that are killed, stopped, refused or started twice end up like an uninterrupted run."""

import json
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from normlab.records.store import read_record
from normlab.training.checkpoint import load_checkpoint
from tests.tiny_runs import QUICK, RESUMED, Ended, Kill, RunProcess, nothing, run, tiny
from tests.training.trainers import enter_rank, free_port

TIMING = ("time/seconds", "train/tokens_per_second")
INTERRUPTED = 130


def rows(folder: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k not in TIMING} for row in found]


def assert_same(folder: Path, undisturbed: Path) -> None:
    """Assert that two run folders agree in everything except time and memory."""
    ours = load_checkpoint(folder / "checkpoints" / "last.pt")
    theirs = load_checkpoint(undisturbed / "checkpoints" / "last.pt")
    for name, value in theirs["model"].items():
        assert torch.equal(ours["model"][name], value), name
    assert torch.equal(ours["random"][0]["cpu"], theirs["random"][0]["cpu"])
    assert rows(folder) == rows(undisturbed)
    mine, other = read_record(folder), read_record(undisturbed)
    assert mine.outcome == other.outcome
    assert mine.scores == other.scores
    assert mine.stability == other.stability
    assert mine.budget.tokens == other.budget.tokens
    assert mine.data == other.data
    hypotheses = "hypotheses.txt"
    assert (folder / hypotheses).read_bytes() == (undisturbed / hypotheses).read_bytes()
    assert not list(folder.rglob("*.partial"))
    names = {path.name for path in (folder / "checkpoints").iterdir()}
    assert names == {path.name for path in (undisturbed / "checkpoints").iterdir()}


class Place:
    """A folder in which one run is started several times."""

    def __init__(self, corpus: Path, folder: Path):
        self.corpus, self.runs, self.log = corpus, folder / "runs", folder / "log"

    def argv(self, *overrides: str) -> list[str]:
        return ["train", *tiny(self.corpus, self.runs, *RESUMED, *overrides)]

    def start(self, *overrides: str, prepare=nothing) -> Ended:
        return run(self.argv(*overrides), self.log, prepare)

    @property
    def folder(self) -> Path:
        (lock,) = self.runs.rglob(".lock")
        return lock.parent

    def steps_logged(self) -> int:
        path = next(iter(self.runs.rglob("metrics.jsonl")), None)
        return 0 if path is None else path.read_text().count("\n")


@pytest.fixture
def place(corpus: Path, tmp_path: Path) -> Place:
    return Place(corpus, tmp_path)


# 12 steps; rows at 2, 4, ...; validations at 4, 8, 12; checkpoints at 3, 4, 6, 8, 9, 12.
MOMENTS = {
    "before the first step": Kill("normlab.training.trainer.Trainer.step", 1),
    "in the middle of a step": Kill("normlab.training.trainer.Trainer._loss", 6, "after"),
    "after a row, before its checkpoint": Kill("normlab.training.sinks.Jsonl.log", 3, "after"),
    "while saving a later checkpoint": Kill("normlab.training.checkpoint.torch.save", 9, "within"),
    "in the middle of the test": Kill("normlab.tasks.translation.Translation.score_lines", 4),
    "before the record is written": Kill("normlab.records.record.RunRecord.to_json", 1),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_run_ends_like_an_uninterrupted_run(moment: str, place: Place, undisturbed: Path):
    killed = place.start(prepare=MOMENTS[moment].install)
    assert killed.status == -signal.SIGKILL, killed.output
    assert not (place.folder / "record.json").exists()
    ended = place.start()
    assert ended.status == 0, ended.output
    assert_same(place.folder, undisturbed)


def test_a_run_killed_several_times_ends_like_an_uninterrupted_run(place: Place, undisturbed: Path):
    """The last kill cuts a row in half."""
    for step in (5, 3, 5):  # resumed at 1, 5 and 7
        killed = place.start(prepare=Kill("normlab.training.trainer.Trainer.step", step).install)
        assert killed.status == -signal.SIGKILL, killed.output
    metrics = place.folder / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes()[:-30])
    assert place.start().status == 0
    assert_same(place.folder, undisturbed)


def test_resuming_without_the_weights_for_the_test_fails_before_training(place: Place):
    place.start(prepare=Kill("normlab.training.trainer.Trainer.step", 8).install)
    (lost := place.folder / "checkpoints" / "best-loss.pt").unlink()
    ended = place.start()
    assert ended.status == 1 and f"{lost} is missing" in ended.output
    assert "restore it, or remove" in ended.output and "last.pt" in ended.output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_saves_a_checkpoint_before_the_run_stops(
    number: signal.Signals, place: Place, undisturbed: Path
):
    """The signal arrives in the middle of step 7, after which no checkpoint is due."""
    moment = Kill("normlab.training.trainer.Trainer._loss", 7, "after", number)
    stopped = place.start(prepare=moment.install)
    assert stopped.status == INTERRUPTED, stopped.output
    assert "Traceback" not in stopped.output
    record = read_record(place.folder)
    assert record.outcome.status == "interrupted"
    assert record.outcome.reason == number.name
    state = load_checkpoint(place.folder / "checkpoints" / "last.pt")
    assert state["progress"]["step"] == record.outcome.step in (7, 8)
    ended = place.start()
    assert ended.status == 0, ended.output
    assert_same(place.folder, undisturbed)


def test_a_signal_during_the_last_validation_is_not_lost(place: Place, undisturbed: Path):
    moment = Kill("normlab.training.trainer.Trainer._validate", 3, "after", signal.SIGTERM)
    stopped = place.start(prepare=moment.install)
    assert stopped.status == INTERRUPTED, stopped.output
    assert place.start().status == 0
    assert_same(place.folder, undisturbed)


@dataclass(frozen=True)
class Rank:
    """Makes a process one of several ranks, and kills it at a given moment."""

    rank: int
    size: int
    port: int
    kill: Kill | None

    def install(self) -> None:
        enter_rank(self.rank, self.size, self.port)
        if self.kill is not None:
            self.kill.install()


UNSYNCED = ("batch_size=4", "norm.sync=false", "validate.average=0")


def start_ranks(place: Place, *kills: Kill | None) -> list[Ended]:
    """Start a run on two ranks, one of which may be killed, and wait for both."""
    port = free_port()
    argv = place.argv(*UNSYNCED)
    logs = [place.log.with_name(f"rank{rank}") for rank in (0, 1)]
    ranks = [
        RunProcess(argv, log, prepare=Rank(rank, 2, port, kill).install)
        for rank, (log, kill) in enumerate(zip(logs, kills or (None, None), strict=True))
    ]
    return [rank.wait(240) for rank in ranks]


def test_a_rank_reports_that_the_other_has_ended_and_the_run_resumes_later(
    place: Place, tmp_path: Path
):
    alone = Place(place.corpus, tmp_path / "two_ranks")
    assert [end.status for end in start_ranks(alone)] == [0, 0]
    assert read_record(alone.folder).environment["world_size"] == 2
    left, lost = start_ranks(
        place, None, Kill("normlab.training.trainer.Trainer._loss", 5, "after")
    )
    assert lost.status == -signal.SIGKILL and left.status == 1
    (line,) = [text for text in left.output.splitlines() if text.startswith("normlab train: ")]
    assert "rank 0 of 2: another rank has ended" in line
    assert "run the same command again" in line and "Traceback" not in left.output
    one = place.start(*UNSYNCED)
    assert one.status == 1 and "start it with 2" in one.output
    assert "Traceback" not in one.output
    again = start_ranks(place)
    assert [end.status for end in again] == [0, 0], again
    assert_same(place.folder, alone.folder)


def test_a_second_process_on_the_same_run_is_refused(place: Place, undisturbed: Path):
    argv = place.argv()
    first = RunProcess(argv, place.log, prepare=nothing)
    until = time.monotonic() + 60
    while place.steps_logged() < 2 and time.monotonic() < until:
        time.sleep(0.01)
    first.send(signal.SIGSTOP)  # it keeps the lock while paused
    try:
        second = run(argv, place.log.with_name("second"))
    finally:
        first.send(signal.SIGCONT)
    assert second.status == 1
    assert "Traceback" not in second.output
    assert "is being trained by another process" in second.output
    assert str(place.folder) in second.output
    assert first.wait().status == 0
    assert_same(place.folder, undisturbed)


def test_changed_data_with_the_same_config_are_refused(
    place: Place, undisturbed: Path, corpus: Path, tmp_path: Path
):
    copied = place.runs / undisturbed.parent.name / undisturbed.name
    shutil.copytree(undisturbed, copied)
    other = tmp_path / "elsewhere" / corpus.name
    shutil.copytree(corpus, other)
    same = place.start(f"data_dir={other}")
    assert same.status == 0, same.output  # the same text in another folder is the same experiment
    for language in ("de", "en"):
        path = other / f"train.{language}"
        path.write_text(path.read_text(encoding="utf-8").replace("Hund", "Wolf"), encoding="utf-8")
    refused = place.start(f"data_dir={other}")
    assert refused.status == 1
    assert "was trained on different data: " in refused.output
    assert "runs_dir" in refused.output


@pytest.mark.parametrize(("asked", "threads"), [("null", 2), ("1", 1)])
def test_a_run_resumes_with_its_original_threads_or_reports_the_change(place, asked, threads):
    kill = Kill("normlab.training.trainer.Trainer.step", 8)
    place.start("observe.threads=2", *QUICK, prepare=kill.install)
    ended = place.start(f"observe.threads={asked}", *QUICK)
    assert ended.status == 0, ended.output
    assert read_record(place.folder).environment["threads"] == threads
    said = "this run was started with 2 threads and resumes with 1" in ended.output
    assert said == (threads == 1)
