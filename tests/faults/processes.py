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

KILLS, WRITES, PAIRS = "kills at random", "writes that fail", "pairs at once"
ERRNOS = (errno.ENOSPC, errno.EIO, errno.EACCES)
_MOST_KILLS = 2
_BY_WRITE = 0.7  # of the kills hit a write, the others any moment
_AT_WORK = "another process is at work"
PAIRED = ("train", "sweep", "publish", "report", "tune", "data", "eval", "plot")


def attack_by_kills(tally: Tally, stage: Stage, rng: random.Random, names: Sequence[str]) -> None:
    """Kill each named command at random moments, some twice, and start it again until it ends."""
    for name in names:
        scene = stage.scenes[name]

        def kill_and_go_on(scene: Scene = scene) -> str | None:
            stage.whole(scene)
            stage.set(scene)
            for _ in range(rng.randint(1, _MOST_KILLS)):
                if (problem := _killed(stage, scene, rng)) is not None:
                    return problem
            return stage.differs(scene)

        tally.take(f"{KILLS}: {name}", f"seed {rng.random()}", kill_and_go_on)


def _killed(stage: Stage, scene: Scene, rng: random.Random) -> str | None:
    whole = stage.whole(scene)
    if rng.random() < _BY_WRITE:
        process = stage.start(scene, fault=stage.fault(rng.randint(1, whole.writes), KILL))
    else:
        process = stage.start(scene)
        process.process.join(rng.uniform(0.0, whole.seconds))
        if process.process.is_alive():
            process.send(signal.SIGKILL)
    ended = process.wait(180)
    # A sweep ends by itself where one of its cells was killed.
    fine = (0, -signal.SIGKILL) + ((1,) if scene.name in ("sweep", "reproduce", "tune") else ())
    return None if ended.status in fine else f"status {ended.status}: {ended.output[-300:]}"


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
    """Start commands twice at a time: one does the work, and the other waits or is refused."""
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
            if len(said) == 2 or any(_AT_WORK not in text for text in said):
                return f"says: {' / '.join(said)[-400:]}"
            return stage.differs(scene)

        tally.take(f"{PAIRS}: {name}", f"seed {rng.random()}", start_both)
