"""A queue whose process group is killed in the middle, and resumed by the same command."""

import os
import signal
import time

from normlab.commands import study as command
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


def test_a_queue_with_planned_analyses_is_resumed_and_decides_the_same(place, capsys):
    argv = ["one", "two", "--until-decided"]

    def slowly(run):
        return {**bleu(3.0)(run), "seconds": 60.0 if (run.row, run.seed) == ("bn", 2) else 0.0}

    plan(place, slowly)
    begun = "one bn seed=2"
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
