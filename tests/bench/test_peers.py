"""The comparison with other programs: files, turns, rates. It runs without these programs."""

import sys

import pytest

from normlab.distributed.process_group import Shard
from normlab.tasks.translation import Translation
from tests.bench.small import SCRIPTS

from bench.common import bench_task  # isort: skip  (scripts/ is put on the path above)
from bench.peers import files, table  # isort: skip
from bench.peers.race import Entry, Program, Race, Turn  # isort: skip
from bench.peers.work import token_counts  # isort: skip

FAKE = """
import itertools, json, sys, time
from bench.peers.turns import Turns

def batches():
    for n in itertools.count(1):
        if n == int(sys.argv[1]):
            raise ValueError("no more batches")
        time.sleep(0.001)
        yield n

turns = Turns(packages=["torch"], differs=["fake"])
print("libraries print, which is no answer")
for n in turns.paced(batches(), lambda n: {"target_tokens": 10, "last": 0}):
    until = time.process_time() + 0.02
    while time.process_time() < until:
        pass
    print("step", n, file=sys.stderr)
"""


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return files.write(tmp_path_factory.mktemp("work"), "b", pairs=600)


def fake(tmp_path, fails_at=0):
    script = tmp_path / "fake.py"
    script.write_text(FAKE)
    return Program.start(
        [sys.executable, str(script), str(fails_at)], log=tmp_path / "log.txt", path=[SCRIPTS]
    )


def entry(name, kind="training"):
    return Entry(name, kind, "none", "none", "fp32")


def ended(lines):
    return [[*line.split(), "</s>"] for line in lines]


def test_in_every_epoch_peers_get_the_same_batches_as_normlab(work):
    task = bench_task(files.config_of("b", "fp32"), pairs=600)
    assert isinstance(task, Translation)
    training = task.train_batches(Shard(0, 1), 1)
    batches = work.batches()
    pairs = sorted(zip(work.lines("train.src"), work.lines("train.tgt"), strict=True))
    first = []
    for source, target in batches:
        drawn = next(training)
        assert len(source) == len(target) == len(drawn.source)
        counted = token_counts((ended(source), ended(target)))
        assert counted["target_tokens"] == drawn.tokens
        assert (counted["positions"], counted["padding"]) == (drawn.positions, drawn.padding)
        if len(first) < len(pairs):
            first += zip(source, target, strict=True)
    assert sorted(first) == pairs
    assert training.epochs == 3


def test_a_race_continues_without_programs_that_fail(tmp_path, monkeypatch, capsys):
    good, bad, absent = entry("good fp32"), entry("bad fp32"), entry("absent fp32")
    missing = Entry("broken fp32", "training", "broken", "none", "fp32")
    (tmp_path / "broken.failed").write_text("ERROR: no wheel\n")
    race = Race(tmp_path, tmp_path)
    own_start = race._start

    def start(which):
        if which in (absent, missing):
            return own_start(which)
        place = tmp_path / which.name
        place.mkdir()
        return fake(place, fails_at=4 if which == bad else 0)

    monkeypatch.setattr(race, "_start", start)
    try:
        race.start([good, bad, absent, missing], warmup=0.0)
        for _ in range(4):
            race.round(0.0)
        results = race.results()
    finally:
        race.close()
    assert [(found, len(turns)) for found, _, turns in results] == [(good, 4)]
    assert results[0][1]["differs"] == ["fake"]
    for turn in results[0][2]:
        assert turn.counts == {"target_tokens": 10, "last": 0} and turn.busy > 0
    assert "no more batches" in race.failed[bad]
    assert "run scripts/bench/peers.sh" in race.failed[absent]
    assert race.failed[missing] == "cannot be installed: ERROR: no wheel"
    assert "bad fp32, training:" in capsys.readouterr().err


def turn(tokens, busy, wall, memory=2**30):
    counts = {"target_tokens": tokens, "positions": 4 * tokens, "padding": tokens}
    return Turn(wall=wall, busy=busy, steps=2, counts=counts, peak_memory_bytes=memory)


def measured():
    facts = {"versions": {"torch": "2"}, "differs": ["its own batches"]}
    return [
        (entry("Peer fp32"), facts, [turn(1000, 1.0, 2.0), turn(3000, 2.0, 2.0)]),
        (entry("normlab fp32"), facts, [turn(4000, 1.0, 2.0), turn(3000, 1.0, 1.0, 2**31)]),
        (entry("normlab bf16"), facts, [turn(8000, 1.0, 1.0), turn(9000, 1.0, 1.0)]),
    ]


def test_the_table_computes_rates_and_ratios_round_by_round():
    peer, own, fast = table.figures(measured())
    assert peer["busy_rates"] == [1000, 1500]
    assert peer["per_busy_second"] == {"median": 1250, "min": 1000, "max": 1500, "n": 2}
    assert peer["per_second"] == {"median": 1000, "min": 500, "max": 1500, "n": 2}
    assert list(own["ratio_to"]) == ["Peer fp32", "normlab fp32", "normlab bf16"]
    # 4000 / 1000 and 3000 / 1500, not the ratio of the medians
    assert own["ratio_to"]["Peer fp32"] == {"median": 3, "min": 2, "max": 4, "n": 2}
    assert fast["ratio_to"]["normlab bf16"]["median"] == 1
    assert own["peak_memory_bytes"] == 2**31
    assert own["steps"] == 4
