"""The harness for a person, which scripts/faults.sh starts."""

import argparse
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from normlab.config import compose, to_dict
from tests.faults import archives, command_lines, folders, hostile, processes
from tests.faults.scenes import Stage
from tests.faults.tally import Tally
from tests.tiny_runs import write_corpus

REPORT = Path(__file__).resolve().parents[2] / "results" / "faults.md"
ROUNDS = 20
"""The rounds of a full volume; with more time, more rounds follow."""
# Attacks of a round: a part in 20 of 2,000 command lines, 300 kills, ...
LINES, CONFIGS, RECORDS, DATA, FOLDERS, ARCHIVES, PAIRS = 100, 50, 200, 50, 5, 5, 1
KILLS = ["train", "publish", "report", "data", "claims", "eval", "plot", "train", "publish"]
KILLS += ["report", "data", "explain", "inspect", "train", "sweep", "claims", "data", "report"]
KILLS += ["publish", "train", "eval", "tune", "train", "data", "claims", "plot", "reproduce"]
KILLS += ["train", "publish", "report"]
# Of each of these every write is failed once in a full volume.
WRITTEN = ("train", "publish", "report", "claims", "data", "eval", "plot", "explain", "tune")
COMMANDS = tuple(sorted(set(KILLS)))
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
                tally, self.stage, rng, self._of(KILLS[number % 2 :: 2])
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
            processes.attack_writes(tally, self.stage, name, chosen, first=number // ROUNDS)

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
    with tempfile.TemporaryDirectory(prefix="normlab-faults-") as folder:
        work = Path(folder)
        os.environ["NORMLAB_CACHE"] = str(work / "cache")
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
