"""What a run makes of code and arithmetic that are not those of what it finds in its folder."""

import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from normlab.records.pairs import arithmetic
from normlab.records.store import RunStore
from tests.tiny_runs import Ended, Kill, run, tiny

SHORT = ("budget.steps=4", "observe.checkpoint_every=2")
KILLED = Kill("normlab.train.loop.Trainer.step", 4)
NO_STEP = Kill("normlab.train.loop.Trainer.step", 1)


class Place:
    """A folder of runs, in which runs are started by processes of their own."""

    def __init__(self, corpus: Path, folder: Path):
        self.corpus, self.runs, self.log = corpus, folder / "runs", folder / "log"

    def start(self, *overrides: str, prepare: Callable[[], object]) -> Ended:
        return run(["train", *tiny(self.corpus, self.runs, *SHORT, *overrides)], self.log, prepare)

    @property
    def records(self):
        return RunStore(self.runs).records()


@pytest.fixture
def place(corpus: Path, tmp_path: Path) -> Place:
    return Place(corpus, tmp_path)


@dataclass(frozen=True)
class Prepared:
    """Gives a process another processor, or a moment at which it is killed."""

    features: str | None = None
    kill: Kill | None = None

    def __call__(self) -> None:
        from normlab import machine

        machine.gpu = lambda: None
        if self.features is not None:
            features = frozenset(self.features.split())
            machine.processor_features = lambda: features
        if self.kill is not None:
            self.kill.install()


AVX2 = Prepared("avx2 fma")
AVX512_BF16 = Prepared("avx2 fma avx512_bf16")


def test_a_run_begun_in_other_arithmetic_is_refused_with_the_ways_out(place: Place):
    begun = place.start(prepare=Prepared(AVX512_BF16.features, kill=KILLED))
    assert begun.status == -signal.SIGKILL, begun.output
    for policy in ("refuse", "accept"):
        refused = place.start(f"observe.other_code={policy}", prepare=AVX2)
        assert refused.status == 1
        assert "Traceback" not in refused.output
        for part in ("cpu fp32 AVX512-BF16", "cpu fp32 AVX2", "other_code=rerun", "runs_dir"):
            assert part in refused.output
        assert not place.records
    ended = place.start(prepare=AVX512_BF16)
    assert ended.status == 0, ended.output
    assert [arithmetic(each) for each in place.records] == [("cpu", "fp32", "AVX512-BF16")]


def test_a_run_begun_in_other_arithmetic_is_trained_anew_where_that_is_asked_for(place: Place):
    place.start(prepare=Prepared(AVX512_BF16.features, kill=KILLED))
    ended = place.start("observe.other_code=rerun", prepare=AVX2)
    assert ended.status == 0, ended.output
    assert [arithmetic(each) for each in place.records] == [("cpu", "fp32", "AVX2")]


def test_a_seed_that_was_finished_elsewhere_is_returned(place: Place):
    assert place.start(prepare=AVX2).status == 0
    ended = place.start(prepare=Prepared(AVX512_BF16.features, kill=NO_STEP))
    assert ended.status == 0, ended.output
    assert [arithmetic(each) for each in place.records] == [("cpu", "fp32", "AVX2")]


def test_auto_is_another_run_where_it_becomes_another_precision(place: Place):
    begun = place.start("precision=auto", prepare=Prepared(AVX2.features, kill=KILLED))
    assert begun.status == -signal.SIGKILL, begun.output
    ended = place.start("precision=auto", prepare=AVX512_BF16)
    assert ended.status == 0, ended.output
    assert len(list(place.runs.rglob("config.yaml"))) == 2
    (record,) = place.records
    assert record.config["precision"] == "bf16"
    assert arithmetic(record) == ("cpu", "bf16", "AVX512-BF16")
