"""The harness for a person, which scripts/faults.sh starts."""

import argparse
import os
import random
import tempfile
import time
from pathlib import Path

from normlab.config import compose, to_dict
from tests.faults import command_lines, folders, hostile, processes
from tests.faults.tally import Tally
from tests.tiny_runs import write_corpus

REPORT = Path(__file__).resolve().parents[2] / "results" / "faults.md"
# Attacks of a round; rounds go on until the time is over.
ROUND = {"lines": 200, "configs": 100, "records": 400, "data": 100, "folders": 10, "kills": 6}
ROUND |= {"writes": 9, "pairs": 2}


def attack(tally: Tally, rng: random.Random, work: Path, bench: processes.Bench) -> None:
    """Try one round of everything."""
    number = rng.randrange(2**32)
    config = to_dict(compose([rng.choice(("norm=bn", "norm=ln")), f"task={_task(rng)}"]))
    record = (bench.undisturbed / "record.json").read_text("utf-8")
    text = work / "hostile-text"
    text.mkdir(exist_ok=True)
    command_lines.attack(tally, rng, ROUND["lines"])
    hostile.attack_configs(tally, config, ROUND["configs"], number)
    hostile.attack_records(tally, record, ROUND["records"], number)
    hostile.attack_data(tally, text, ROUND["data"], number)
    folders.attack(tally, rng, bench.undisturbed, work, ROUND["folders"])
    processes.attack_by_kills(tally, bench, rng, ROUND["kills"])
    processes.attack_writes(tally, bench, rng, ROUND["writes"])
    processes.attack_by_pairs(tally, bench, rng, ROUND["pairs"])


def _task(rng: random.Random) -> str:
    return rng.choice(("toy", "lm", "mlm"))


def main() -> int:
    """Attack until the time is over, and write the report; 1 where something fell."""
    parser = argparse.ArgumentParser(description="Attack normlab and report what held.")
    parser.add_argument("--hours", type=float, default=0.1, help="default: 0.1")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    parser.add_argument("--report", type=Path, default=REPORT, help="default: results/faults.md")
    given = parser.parse_args()
    tally, rng, start = Tally(), random.Random(given.seed), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="normlab-faults-") as folder:
        work = Path(folder)
        os.environ["NORMLAB_CACHE"] = str(work / "cache")
        bench = processes.Bench(work, write_corpus(work / "text"))
        while True:
            attack(tally, rng, work, bench)
            minutes = (time.monotonic() - start) / 60
            print(tally.text(minutes=minutes, seed=given.seed), flush=True)
            if minutes >= 60 * given.hours:
                break
    tally.write(given.report, minutes=minutes, seed=given.seed)
    return 1 if tally.fell else 0


if __name__ == "__main__":
    raise SystemExit(main())
