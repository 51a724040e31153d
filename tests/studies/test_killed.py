"""Studies whose process group is killed in the middle, and resumed by the same command."""

import json
import os
import signal
import time
from pathlib import Path

from normlab.commands import study as command
from normlab.reports.published import read
from normlab.studies import load_study, tuning_of
from tests.studies.queues import bleu, night, plan


def killed(argv, when):
    """Carry out a command in a process group of its own, and kill all of it at a moment."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            command.main(argv)
        finally:
            os._exit(0)
    deadline = time.monotonic() + 120
    while not when():
        assert time.monotonic() < deadline, "the moment never comes"
        time.sleep(0.05)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def slowly(of, **slow):
    """Return what runs come to, where one of them takes long."""

    def planned(run):
        at = all(getattr(run, name) == value for name, value in slow.items())
        return {**of(run), "seconds": 60.0 if at else 0.0}

    return planned


def test_a_queue_with_planned_analyses_is_resumed_and_decides_the_same(place, capsys):
    argv = ["one", "two", "--until-decided", "--publish", "results"]
    plan(place, slowly(bleu(3.0), row="bn", seed=3))
    begun = "one bn seed=3"
    words = ["run", *argv, "--processes", "1", "--budget", "1h"]
    killed(words, lambda: begun in place.lines("calls"))
    before = len(place.lines("calls"))
    capsys.readouterr()
    plan(place, bleu(3.0))
    code, out = night(capsys, *argv)
    calls = place.lines("calls")
    assert code == 0 and [call for call in calls if calls.count(call) > 1] == [begun] * 2
    assert calls[before] == begun, "the seed that was begun comes first"
    assert "planned analysis at 5 seeds of one scale=smoke:\n  supported: 1 worse\n" in out
    folder = place.folder / "results" / "one" / "smoke"
    assert [run.key.seed for run in read(folder)][::2] == [1, 2, 3, 4, 5]


def test_a_grid_is_resumed_and_makes_no_run_twice(place, capsys):
    plan(place, slowly(bleu(3.0), row="ln", seed=2))
    words = ["run", "one", "--processes", "1", "--budget", "1h"]
    killed(words, lambda: "one ln seed=2" in place.lines("calls"))
    plan(place, bleu(3.0))
    assert night(capsys, "one")[0] == 0
    assert sorted(place.lines("calls")) == sorted(
        ["one ln seed=1", "one bn seed=1", "one ln seed=2", "one ln seed=2", "one bn seed=2"]
    )


def tune(place, of, when=None):
    """Tune the first study and return what was chosen, and every trial."""
    argv = ["tune", "one", "--processes", "1", "--results", "results"]
    study = load_study("one", place.folder / "configs")
    place.plan(study.trials("smoke", tuning_of(study, "smoke")), of)
    if when is not None:
        return killed(argv, when)
    assert command.main(argv) == 0
    content = json.loads(Path("results/one/tuning.json").read_text())
    rows = content["scales"]["smoke"]["rows"]
    trials = [[(t["value"], t["status"], t["score"]) for t in row["trials"]] for row in rows]
    return [row["chosen"] for row in rows], trials


def test_a_tuning_with_pruning_is_resumed_and_chooses_the_same(tuned):
    def of(run):
        value = next(o for o in reversed(run.overrides) if o.startswith("optim.lr="))
        score = {"optim.lr=1e-3": 10.0, "optim.lr=2e-3": 20.0, "optim.lr=4e-3": 1.0}[value]
        seen = [{"step": step, "valid/bleu": score / 2} for step in (25, 50)]
        pruned = 60.0 if score == 1.0 else 0.0
        return {"scores": {"valid/bleu": score}, "rows": seen, "seconds": pruned}

    def count(calls):
        return sum("bn" in call for call in tuned.lines(calls))

    def slow(run):
        wait = 60.0 if (run.row, "optim.lr=2e-3") == ("bn", run.overrides[-3]) else 0.0
        return {**of(run), "seconds": wait or of(run)["seconds"]}

    tune(tuned, slow, when=lambda: count("calls") == 2)
    chosen, trials = tune(tuned, of)
    assert chosen == ["2e-3", "2e-3"]
    assert trials[0] == trials[1]
    assert [status for _, status, _ in trials[0]] == ["finished", "finished", "pruned"]
    assert len(tuned.lines("stopped")) == 2, "what was pruned is not begun again"
    assert len(tuned.lines("calls")) == 6 + 1
