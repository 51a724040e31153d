"""Commands that are killed, of which one write fails, or that are started twice at a time."""

import errno
import os
import random
import signal
import time
from collections.abc import Sequence

from tests.faults.failing import KILL
from tests.faults.scenes import Scene, Stage
from tests.faults.tally import Tally
from tests.tiny_runs import Ended

KILLS, WRITES, PAIRS = "kills at random", "writes that fail", "pairs at once"
ERRNOS = (errno.ENOSPC, errno.EIO, errno.EACCES)
_BY_WRITE = 0.7  # of the kills hit a write, the others any moment
_AGAIN = 0.25  # of those that were killed are killed a second time
_AT_WORK = "another process is at work"
_OF_RUNS = ("sweep", "study", "tune")  # they carry out several runs
PAIRED = ("train", "sweep", "publish", "report", "tune", "data", "eval", "plot")


def attack_by_kills(tally: Tally, stage: Stage, rng: random.Random, names: Sequence[str]) -> None:
    """Kill each named command at random moments, some twice, and start it again until it ends."""
    for name in names:
        scene = stage.scenes[name]

        def kill_and_go_on(scene: Scene = scene) -> str | None:
            stage.set(scene)
            ended = _killed(stage, scene, rng, by_write=rng.random() < _BY_WRITE)
            if ended.status == 0:  # before the moment came; a write it cannot miss
                stage.set(scene)
                ended = _killed(stage, scene, rng, by_write=True)
                if ended.status == 0:
                    return "was not killed"
            if _fine(scene, ended) and rng.random() < _AGAIN:
                ended = _killed(stage, scene, rng, by_write=True)
            if not _fine(scene, ended):
                return f"status {ended.status}: {ended.output[-300:]}"
            return stage.differs(scene)

        tally.take(f"{KILLS}: {name}", f"seed {rng.random()}", kill_and_go_on)


def _killed(stage: Stage, scene: Scene, rng: random.Random, *, by_write: bool) -> Ended:
    """Start a command and kill it, at a write or at any moment from its first write on."""
    whole = stage.whole(scene)
    if by_write:
        process = stage.start(scene, fault=stage.fault(rng.randint(1, whole.writes), KILL))
    else:
        process = stage.start(scene, fault=stage.fault(0, 0))
        if stage.at_work(process):
            process.process.join(rng.uniform(0.0, whole.seconds))
            process.end()
    return process.wait(180)


def _fine(scene: Scene, ended: Ended) -> bool:
    """Tell whether a command ended as one that was killed; a sweep says so of its runs."""
    return ended.status in (0, -signal.SIGKILL, *((1,) if scene.name in _OF_RUNS else ()))


def attack_writes(
    tally: Tally, stage: Stage, name: str, numbers: Sequence[int], *, first: int = 0
) -> None:
    """Let writes of a command fail once each, with the codes in turn."""
    scene = stage.scenes[name]
    for place, number in enumerate(numbers):
        code = ERRNOS[(first + place) % len(ERRNOS)]
        tally.take(
            f"{WRITES}: {name}",
            f"write {number} of {stage.whole(scene).writes}: {errno.errorcode[code]}",
            lambda number=number, code=code: _failed_and_again(stage, scene, number, code),
        )


def _failed_and_again(stage: Stage, scene: Scene, number: int, code: int) -> str | None:
    stage.set(scene)
    ended = stage.carry_out(scene, stage.fault(number, code))
    if ended.status == 0:
        return "it did not notice"
    said = [line for line in ended.output.splitlines() if os.strerror(code) in line]
    if "Traceback" in ended.output or not said:
        return f"says: {ended.output[-400:]}"
    if not any(str(stage.place) in line for line in said):
        return f"names no file: {said[0][-300:]}"
    if left := [*stage.place.rglob("*.partial"), *stage.place.rglob("*.building-*")]:
        return f"leaves a part of a file: {left[0].name}"
    return stage.differs(scene)


def attack_by_pairs(tally: Tally, stage: Stage, rng: random.Random, names: Sequence[str]) -> None:
    """Start commands twice at a time: one does the work, and the other waits or is refused.

    Of a sweep each may do a part, and be refused the run that the other is at work on.
    """
    for name in names:
        scene = stage.scenes[name]

        def start_both(scene: Scene = scene) -> str | None:
            seconds = stage.whole(scene).seconds
            stage.set(scene)
            both = []
            for log in ("log0", "log1"):
                both.append(stage.start(scene, log))
                time.sleep(rng.uniform(0, seconds / 4))
            ended = [process.wait(180) for process in both]
            said = [each.output for each in ended if each.status != 0]
            most = 2 if scene.name in _OF_RUNS else 1
            if len(said) > most or any(_AT_WORK not in text for text in said):
                return f"says: {' / '.join(said)[-400:]}"
            return stage.differs(scene)

        tally.take(f"{PAIRS}: {name}", f"seed {rng.random()}", start_both)
