"""Commands that write, each with the folder that it starts from and what it makes undisturbed."""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import normlab
from normlab.config.registry import CONFIG_DIR
from normlab.reports.manifest import PAGE
from tests.faults.failing import Fault
from tests.faults.within import Within
from tests.tiny_runs import RESUMED, Ended, RunProcess, tiny
from tests.train.test_resume import assert_same

_SHORT = ("budget.steps=4", "validate.every=2", "observe.checkpoint_every=2", "schedule.warmup=2")
_SHORT += ("task.test_search.beam=1", "task.test_search.length_offset=4")
_SHORT += ("task.valid_search.length_offset=4",)
_ONE = """# normlab study run one
# A study of two norms, to be disturbed.
document: D0
table: Norms
claims: [1]
rows: {{ln: [norm=ln], bn: [norm=bn]}}
grid: {{}}
columns: [test/bleu]
figures: {{}}
scales:
  smoke:
    overrides: [{overrides}]
    seeds: [1]
    minutes: 0.1
    data: a corpus of the test
    tuning: {{key: optim.lr, values: [1e-3, 4e-3], seeds: [101], score: valid/loss}}
"""


@dataclass(frozen=True)
class Scene:
    """A command, and how to make the folder that it starts in; it always works in the same one."""

    name: str
    argv: tuple[str, ...]
    begin: Callable[[Path], object]


@dataclass(frozen=True)
class Whole:
    """What a command makes undisturbed: a copy of its folder, and its writes.

    `changing` are files that differ from one time to the next, such as those with a duration.
    `seconds` last from the first write to the end.
    """

    folder: Path
    changing: frozenset[str]
    writes: int
    seconds: float

    def keep(self, path: Path) -> None:
        """Write it into a file, with what code it is of."""
        kept = asdict(self) | {"folder": str(self.folder), "changing": sorted(self.changing)}
        path.write_text(json.dumps(kept | {"code": _code()}), "utf-8")

    @classmethod
    def kept(cls, path: Path) -> "Whole | None":
        """Read what another process of the harness has kept of the same code."""
        content = json.loads(path.read_text("utf-8")) if path.is_file() else {}
        if content.pop("code", None) != _code():
            return None
        content |= {"folder": Path(content["folder"]), "changing": frozenset(content["changing"])}
        return cls(**content)


@cache
def _code() -> str:
    """Return the checksum of the package and of what carries out its commands."""
    digest = hashlib.sha256()
    harness = [Path(__file__).with_name(f"{name}.py") for name in ("scenes", "within", "failing")]
    for path in [*sorted(Path(normlab.__file__).parent.rglob("*.py")), *harness]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


class Stage:
    """The folder in which commands are carried out, and all scenes."""

    def __init__(self, work: Path, corpus: Path):
        self.work, self.corpus, self.place = work, corpus, work / "stage"
        self.counted = work / "counted"
        self._wholes: dict[str, Whole] = {}

    @cached_property
    def scenes(self) -> dict[str, Scene]:
        """Return all scenes by name."""
        runs, results = self.place / "runs", self.place / "results"
        train = tiny(self.corpus, runs, *RESUMED, *_SHORT)
        grid = [*(word for word in train if not word.startswith("norm=")), "norm=ln,bn"]
        study = ["one", "--processes", "1"]
        root = ["--results", str(results)]
        run = str(runs / "bn" / "seed1")
        found = {
            "train": (["train", *train], _empty),
            "sweep": (["train", "-m", *grid, "observe.processes=1"], _empty),
            "study": (["study", "run", *study], _empty),
            "publish": (["study", "publish", "one", "scale=smoke", *root], self._ended),
            "report": (["report", "--from", str(results)], self._published),
            "claims": (["claims", *self._ledger(results)], self._published),
            "tune": (["study", "tune", *study, "--results", str(results)], self._tried),
            "data": (["inspect", "--data", "task=translation", *self._data(train)], _empty),
            "eval": (["eval", run, "--outputs", str(self.place / "outputs.txt")], self._one),
            "inspect": (["inspect", run, "--only", "order"], self._one),
            "plot": (
                ["report", run, "--figures", "svg", "--out", str(self.place / "figures")],
                self._one,
            ),
            "page": (["report", run, "--out", str(self.place / "page")], self._one),
            "export": (["export", run, "--out", str(self.place / "export")], self._one),
            "new": (["norm", "new", "fresh"], self._own_norms),
            "card": (["norm", "card", *self._card()], _empty),
        }
        return {name: Scene(name, tuple(argv), begin) for name, (argv, begin) in found.items()}

    @property
    def undisturbed(self) -> Path:
        """Return the folder of a run that nobody disturbed."""
        (record,) = self.whole(self.scenes["train"]).folder.rglob("record.json")
        return record.parent

    def set(self, scene: Scene) -> None:
        """Make the folder in which a scene begins."""
        self._made_first(scene)
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir()
        if scene.name in ("study", "publish", "report", "tune", "claims"):
            self._write_study()
        scene.begin(self.place)

    def _made_first(self, scene: Scene) -> None:
        """Make what a scene begins with; it is made in the same folder."""
        needed = {"publish": "study", "report": "publish", "claims": "publish"}
        needed |= dict.fromkeys(("eval", "inspect", "plot", "page", "export"), "train")
        if scene.name in needed:
            self.whole(self.scenes[needed[scene.name]])

    def start(self, scene: Scene, log: str = "log", fault: Fault | None = None) -> RunProcess:
        """Start the command of a scene in a process of its own."""
        # A corpus is prepared in the folder itself where the command is all about that.
        cache = self.place / "cache" if scene.name == "data" else self.work / "cache"
        within = Within(self.place, cache, fault)
        self.counted.unlink(missing_ok=True)
        return RunProcess(scene.argv, self.work / log, prepare=within.install)

    def at_work(self, process: RunProcess) -> bool:
        """Wait until a process that counts its writes has begun one; False where it has ended."""
        while process.process.is_alive():
            if self.counted.exists() and self.counted.stat().st_size:
                return True
            time.sleep(0.002)
        return False

    def carry_out(self, scene: Scene, fault: Fault | None = None) -> Ended:
        """Carry out the command of a scene where it stands."""
        return self.start(scene, fault=fault).wait(180)

    def fault(self, number: int, act: Any) -> Fault:
        """Return a fault of the n-th write of a command."""
        return Fault(self.place, number, act, self.counted)

    def whole(self, scene: Scene) -> Whole:
        """Return what a scene makes undisturbed; it is carried out twice, once."""
        if scene.name not in self._wholes:
            path = self.work / "whole" / f"{scene.name}.json"
            found = Whole.kept(path)
            if found is None:
                found = self._made(scene)
                found.keep(path)
            self._wholes[scene.name] = found
        return self._wholes[scene.name]

    def _made(self, scene: Scene) -> Whole:
        folder = self.work / "whole" / scene.name
        shutil.rmtree(folder, ignore_errors=True)
        self.set(scene)
        self._well(scene)
        shutil.copytree(self.place, folder)
        self.set(scene)
        process = self.start(scene, fault=self.fault(0, 0))
        assert self.at_work(process), f"{scene.name}: writes nothing"
        start = time.monotonic()
        ended = process.wait(180)
        seconds = time.monotonic() - start
        assert ended.status == 0, f"{scene.name}: {ended.output}"
        ours, theirs = _contents(self.place), _contents(folder)
        assert ours.keys() == theirs.keys(), ours.keys() ^ theirs.keys()
        changing = frozenset(name for name in ours if ours[name] != theirs[name])
        return Whole(folder, changing, int(self.counted.read_text().split()[0]), seconds)

    def _well(self, scene: Scene) -> None:
        ended = self.carry_out(scene)
        assert ended.status == 0, f"{scene.name}: {ended.output}"

    def differs(self, scene: Scene) -> str | None:
        """Carry a scene out to its end; return what is not as it is undisturbed."""
        whole = self.whole(scene)
        ended = self.carry_out(scene)
        if ended.status != 0:
            return f"status {ended.status}: {ended.output[-300:]}"
        ours, theirs = _contents(self.place), _contents(whole.folder)
        if odd := sorted(ours.keys() ^ theirs.keys()):
            return f"missing or left behind: {odd[:3]}"
        runs = [path.parent for path in (self.place / "runs").rglob("record.json")]
        within = {str(run.relative_to(self.place)) for run in runs}
        for name in sorted(ours):
            of_a_run = any(name.startswith(f"{run}/") for run in within)
            if not of_a_run and name not in whole.changing and ours[name] != theirs[name]:
                return f"another {name}"
        return next(filter(None, (self._same_run(run, whole.folder) for run in runs)), None)

    def _same_run(self, run: Path, folder: Path) -> str | None:
        try:
            assert_same(run, folder / run.relative_to(self.place))
        except AssertionError as error:
            return f"another result: {error}"
        return None

    def _write_study(self) -> None:
        shutil.copytree(CONFIG_DIR / "study", self.place / "configs" / "study")
        words = tiny(self.corpus, self.place / "runs", *_SHORT)
        text = _ONE.format(overrides=", ".join(f"'{word}'" for word in words))
        (self.place / "configs" / "study" / "one.yaml").write_text(text)

    def _ended(self, place: Path) -> None:
        """Begin with the runs of the study."""
        runs = self.whole(self.scenes["study"]).folder / "runs"
        shutil.copytree(runs, place / "runs", dirs_exist_ok=True)

    def _published(self, place: Path) -> None:
        """Begin with published records whose tables and page are missing or old."""
        results = self.whole(self.scenes["publish"]).folder / "results"
        shutil.copytree(results, place / "results")
        folder = place / "results" / "one" / "smoke"
        (folder / "table.md").unlink()
        (folder / "table.csv").write_text("old\n")
        (folder / PAGE).write_text("old\n")

    def _tried(self, place: Path) -> None:
        """Begin with all trials but one."""
        folder = self.work / "trials"
        if not folder.exists():
            self._well(self.scenes["tune"])
            (place / "runs").rename(folder)
            shutil.rmtree(place)
            place.mkdir()
            self._write_study()
        shutil.copytree(folder, place / "runs")
        last = max((place / "runs").glob("*/seed*/record.json"), key=os.path.getmtime)
        shutil.rmtree(last.parents[1])

    def _one(self, place: Path) -> None:
        """Begin with a run."""
        shutil.copytree(self.undisturbed, place / "runs" / "bn" / "seed1")

    def _own_norms(self, place: Path) -> None:
        """Begin with the places of norms of one's own."""
        for folder in ("norms", "norm"):
            (place / folder).mkdir()

    def _card(self) -> list[str]:
        cards = ["--folder", str(self.place / "cards"), "--processes", "1"]
        return ["norm=bn", "scale=smoke", "--only", "pools,depth", *cards]

    @staticmethod
    def _ledger(results: Path) -> list[str]:
        return ["--write", str(results / "claims.md"), "--results", str(results)]

    @staticmethod
    def _data(train: list[str]) -> list[str]:
        return [word for word in train if word.startswith(("data_dir=", "task.vocab"))]


def _empty(place: Path) -> None:
    """Begin with nothing."""


def _contents(folder: Path) -> dict[str, bytes]:
    """Return the files below a folder, by path; no locks, and not what cells said."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in _files(folder)}


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix not in (".lock", ".log") and path.name != ".lock":
            yield path
