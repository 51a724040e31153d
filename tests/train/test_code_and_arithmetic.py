"""What a run makes of code and arithmetic that are not those of what it finds in its folder."""

import json
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from normlab.records.arithmetic import arithmetic
from normlab.records.code import _counts
from normlab.records.store import RunStore
from tests.tiny_runs import Ended, Kill, run, tiny

PACKAGE = Path(__file__).resolve().parents[2] / "normlab"
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
    """Gives a process another processor, another package, or a moment at which it is killed."""

    features: str | None = None
    package: Path | None = None
    kill: Kill | None = None
    loaded: Path | None = None
    """Where the files of the package that the process has loaded are listed."""

    def __call__(self) -> None:
        from functools import partial

        from normlab import machine
        from normlab.train import runtime

        machine.gpu = lambda: None
        if self.features is not None:
            features = frozenset(self.features.split())
            machine.processor_features = lambda: features
        if self.package is not None:
            runtime.code_of = partial(runtime.code_of, package=self.package)
        if self.kill is not None:
            self.kill.install()
        if self.loaded is not None:
            self._list_what_is_loaded(self.loaded)

    @staticmethod
    def _list_what_is_loaded(path: Path) -> None:
        import sys

        write = RunStore.write

        def wrapped(*arguments):
            names = [name for name in sys.modules if name.split(".")[0] == "normlab"]
            path.write_text(json.dumps([sys.modules[name].__file__ for name in names]))
            return write(*arguments)

        RunStore.write = wrapped


AVX2 = Prepared("avx2 fma")
AVX512_BF16 = Prepared("avx2 fma avx512_bf16")


def test_every_file_that_a_run_loads_is_among_those_it_names(place: Place, tmp_path: Path):
    """Whatever way it is imported: by name, inside a function, or found by a string."""
    ended = place.start("norm=bn", prepare=Prepared(loaded=tmp_path / "loaded"))
    assert ended.status == 0, ended.output
    (record,) = place.records
    loaded = json.loads((tmp_path / "loaded").read_text())
    paths = {Path(path).relative_to(PACKAGE).as_posix() for path in loaded}
    assert {"tasks/translation.py", "norms/batch.py", "run.py"} <= paths
    assert {path for path in paths if _counts(path)} <= set(record.environment["code_files"])


def test_finished_runs_stay_finished_when_a_norm_and_a_task_are_added(place: Place, tmp_path: Path):
    ignored = shutil.ignore_patterns("__pycache__")
    copy = Path(shutil.copytree(PACKAGE, tmp_path / "normlab", ignore=ignored))
    made, again = Prepared(package=copy), Prepared(package=copy, kill=NO_STEP)
    for norm in ("ln", "bn"):
        assert place.start(f"norm={norm}", prepare=made).status == 0
    before = {path: path.read_bytes() for path in place.runs.rglob("record.json")}
    assert len(before) == 2

    for folder in ("norms", "tasks", "probes"):
        (copy / folder / "throw_away.py").write_text('"""A variant that is tried."""\n')
    for norm in ("ln", "bn"):
        ended = place.start(f"norm={norm}", prepare=again)
        assert ended.status == 0, ended.output
        assert "finished at step 4" in ended.output

    with (copy / "norms" / "batch.py").open("a") as file:
        file.write("\n# Another state.\n")
    assert place.start("norm=ln", prepare=again).status == 0
    refused = place.start("norm=bn", prepare=again)
    assert refused.status == 1
    assert "was made by other code" in refused.output
    assert ": norms/batch.py. Its figures may differ" in refused.output
    assert before == {path: path.read_bytes() for path in place.runs.rglob("record.json")}


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
