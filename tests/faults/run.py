"""The harness for a person, which scripts/faults.sh starts."""

import argparse
import contextlib
import gc
import multiprocessing
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import forkserver
from pathlib import Path

import yaml

from normlab.config.compose import compose, to_dict
from tests.faults import archives, command_lines, folders, hostile, processes
from tests.faults.scenes import Stage
from tests.faults.tally import Tally
from tests.tiny_runs import write_corpus

REPORT = Path(__file__).resolve().parents[2] / "results" / "faults.md"
ROUNDS = 20
"""The rounds of a full volume; with more time, more rounds follow."""
# Attacks of a round: a part in 20 of 2,000 command lines, ...
LINES, CONFIGS, RECORDS, DATA, FOLDERS, ARCHIVES, PAIRS = 100, 30, 100, 30, 5, 5, 1
# How often each command is killed in a full volume; those that train several runs take longest.
KILLS = {"train": 44, "data": 26}
KILLS |= dict.fromkeys(("publish", "report", "claims", "eval", "plot"), 24)
KILLS |= dict.fromkeys(("inspect", "page"), 20) | {"new": 10}
KILLS |= dict.fromkeys(("sweep", "study", "tune", "export", "card"), 8)
# Of each of these every write is failed once in a full volume.
WRITTEN = ("train", "publish", "report", "claims", "data", "eval", "plot", "tune")
WRITTEN += ("page", "new", "inspect")
COMMANDS = tuple(sorted(KILLS))
PARTS = ("lines", "files", "folders", "archives", "kills", "writes", "pairs")


class Harness:
    """Rounds of attacks; which round it is and the seed decide what is tried."""

    def __init__(self, work: Path, seed: str, commands: Sequence[str] = COMMANDS):
        self.work, self.seed, self.commands = work, seed, commands
        self.stage = Stage(work, write_corpus(work / "text"))

    def attack(self, part: str, tally: Tally, number: int) -> None:
        """Try what a part has in a round."""
        attacks: dict[str, Callable[[Tally, random.Random, int], None]] = {
            "lines": lambda tally, rng, _: command_lines.attack(tally, rng, LINES),
            "files": self._files,
            "folders": lambda tally, rng, _: folders.attack(
                tally, rng, self.stage.undisturbed, self.work, FOLDERS
            ),
            "archives": lambda tally, rng, _: archives.attack(
                tally, rng, self.stage.undisturbed, self.work, ARCHIVES
            ),
            "kills": lambda tally, rng, number: processes.attack_by_kills(
                tally, self.stage, rng, self._of(_killed_in(number))
            ),
            "writes": self._writes,
            "pairs": self._pairs,
        }
        attacks[part](tally, random.Random(f"{self.seed} {part} {number}"), number)

    def _of(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if name in self.commands]

    def _files(self, tally: Tally, rng: random.Random, _: int) -> None:
        number = rng.randrange(2**32)
        task = rng.choice(("toy", "lm", "mlm"))
        config = to_dict(compose([rng.choice(("norm=bn", "norm=ln")), f"task={task}"]))
        hostile.attack_configs(tally, config, CONFIGS, number)
        record = (self.stage.undisturbed / "record.json").read_text("utf-8")
        hostile.attack_records(tally, record, RECORDS, number)
        text = self.work / "hostile-text"
        text.mkdir(exist_ok=True)
        hostile.attack_data(tally, text, DATA, number)

    def _writes(self, tally: Tally, _: random.Random, number: int) -> None:
        """Fail a part of the writes of each command; after all of them, with another code."""
        for name in self._of(WRITTEN):
            writes = self.stage.whole(self.stage.scenes[name]).writes
            chosen = range(1 + number % ROUNDS, writes + 1, ROUNDS)
            processes.attack_writes(tally, self.stage, name, chosen, first=number)

    def _pairs(self, tally: Tally, rng: random.Random, number: int) -> None:
        paired = processes.PAIRED
        names = [paired[(PAIRS * number + each) % len(paired)] for each in range(PAIRS)]
        processes.attack_by_pairs(tally, self.stage, rng, self._of(names))


def main(argv: Sequence[str] | None = None) -> int:
    """Attack until the time is over or the volume reached, and report; 1 where something fell."""
    given = _parser().parse_args(argv)
    tally = Tally.read(given.state)
    if given.merge:
        for path in given.merge:
            tally.add(Tally.read(path))
        tally.write(given.report, seed=given.seed)
        return 1 if tally.fell else 0
    with _place(given.state) as work:
        os.environ["NORMLAB_CACHE"] = str(work / "cache")
        _start_server()
        harness, start = Harness(work, given.seed, given.commands), time.monotonic()
        for part, number in _order(given.parts, tally):
            past = time.monotonic() - start
            if past >= 3600 * given.hours or (given.volume and number >= ROUNDS):
                break
            found = Tally(rounds=Counter({part: 1}))
            harness.attack(part, found, number)
            found.seconds = time.monotonic() - start - past
            tally.add(found)
            if given.state is not None:
                tally.keep(given.state)
            print(tally.text(seed=given.seed), flush=True)
    tally.write(given.report, seed=given.seed)
    return 1 if tally.fell else 0


def _killed_in(number: int) -> list[str]:
    """Return the commands that are killed in a round; in a full volume each as often as it is due.

    They come in an order of no pattern, the same in every volume.
    """
    names = [name for name, times in KILLS.items() for _ in range(times)]
    random.Random(0).shuffle(names)
    return names[number % ROUNDS :: ROUNDS]


@contextlib.contextmanager
def _place(state: Path | None) -> Iterator[Path]:
    """Return the folder to work in: beside the state, so that what was made once stays there."""
    if state is None:
        with tempfile.TemporaryDirectory(prefix="normlab-faults-") as folder:
            yield Path(folder)
    else:
        folder = state.with_suffix(".work")
        folder.mkdir(parents=True, exist_ok=True)
        yield folder.resolve()


def _start_server() -> None:
    """Start what processes are forked from, once all that they begin with has been done there."""
    yaml.SafeLoader = yaml.CSafeLoader  # type: ignore  # reads the same in a fifth of the time
    multiprocessing.get_context("forkserver").set_forkserver_preload(["tests.faults.preload"])
    forkserver.ensure_running()
    gc.freeze()


def _order(parts: Sequence[str], tally: Tally) -> Iterator[tuple[str, int]]:
    """Yield parts and the rounds that they are in, those with the fewest rounds first."""
    while True:
        part = min(parts, key=lambda part: tally.rounds[part])
        yield part, tally.rounds[part]


def _parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="faults.sh", description="Attack normlab and report what held."
    )
    result.add_argument("--hours", type=float, default=0.1, help="default: 0.1")
    result.add_argument("--seed", default="1", help="default: 1")
    result.add_argument("--volume", action="store_true", help=f"end after {ROUNDS} rounds of each")
    result.add_argument(
        "--state", type=Path, metavar="FILE", help="keep what was tried; go on with what is there"
    )
    result.add_argument(
        "--merge", nargs="+", type=Path, metavar="FILE", help="attack nothing: report these states"
    )
    result.add_argument(
        "--parts", nargs="+", choices=PARTS, default=PARTS, help="default: all of them"
    )
    result.add_argument(
        "--commands", nargs="+", choices=COMMANDS, default=COMMANDS, help="default: all that write"
    )
    result.add_argument("--report", type=Path, default=REPORT, help="default: results/faults.md")
    return result


if __name__ == "__main__":
    raise SystemExit(main())
