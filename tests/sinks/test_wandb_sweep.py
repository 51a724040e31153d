"""What a real sweep leaves for W&B, read back from its offline files; the view shows only that."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from normlab.records.store import RunStore
from normlab.train.sinks.wandb_server import GROUPING, SECTIONS
from tests.sinks.offline_file import OfflineRun, read
from tests.sinks.wandb_client import files
from tests.tiny_runs import Kill, RunProcess, tiny, write_corpus

SINKS = ("sink=[jsonl,wandb]", "observe.sink.wandb.mode=offline", "probe=full")


def _quiet() -> None:
    """Leave no login and no wish of W&B's in the environment."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        del os.environ[name]


def _dies() -> None:
    _quiet()
    Kill("normlab.train.loop.Trainer.save", 3, "after", signal.SIGKILL).install()


def normlab(*argv: str, log: Path, prepare: Callable[[], None] = _quiet) -> str:
    return RunProcess(list(argv), log, prepare=prepare).wait(300).output


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("text") / "text")


@pytest.fixture(scope="module")
def sweep(corpus, tmp_path_factory) -> Path:
    """Return the folder of a sweep of four cells."""
    folder = tmp_path_factory.mktemp("sweep")
    cells = ("norm=ln,bn", "seed=1,2")
    probes = ("updates", "residual", "tid", "fluctuation")
    often = (f"observe.probe.{name}.every=4" for name in probes)
    overrides = tiny(corpus, folder / "runs", *SINKS, *cells, "budget.steps=8", *often)
    output = normlab("train", "-m", *overrides, log=folder / "log")
    assert "4 of 4 runs done" in output, output
    return folder / "runs"


@pytest.fixture(scope="module")
def cells(sweep) -> dict[str, OfflineRun]:
    return {
        f"{folder.parent.name}/{folder.name}": read(next(folder.rglob("run-*.wandb")))
        for folder, _ in RunStore(sweep).entries()
    }


def test_each_cell_is_a_run_grouped_by_its_fingerprint(cells):
    assert len(cells) == 4
    for name, run in cells.items():
        assert run.run.project == "normlab"
        assert run.run.run_group == name.split("/")[0].split("-")[-1]
        assert run.run.job_type == "train"
        label, seed = name.split("/")
        assert run.run.display_name == label.replace("-pre-", "-pre-b6-") + f"-{seed}"
        assert list(run.run.tags) == [run.config["norm"], "pre", "translation", "b6"]
    assert len({run.run.run_group for run in cells.values()}) == 2  # two norms of two seeds each
    configs = [run.config for run in cells.values()]
    keys = {tuple(config.get(key) for key in GROUPING) for config in configs}
    where = ("translation", "translation", None, "b6")
    assert keys == {(*where, "ln", "pre"), (*where, "bn", "pre")}
    assert {run.config["seed"] for run in cells.values()} == {1, 2}


def test_rows_and_summary_are_those_of_the_run_folder(cells, sweep):
    for folder, record in RunStore(sweep).entries():
        run = cells[f"{folder.parent.name}/{folder.name}"]
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        rows: dict[int, dict] = {}
        for row in map(json.loads, lines):
            rows.setdefault(row["step"], {}).update(row)
        assert [row["_step"] for row in run.history] == sorted(rows)
        for row in run.history:
            assert {k: row[k] for k in rows[row["step"]]} == rows[row["step"]]
        for name, score in record.scores.items():
            seen = [row[name] for row in rows.values() if name in row]
            if not seen:
                assert float(run.summary[name]) == pytest.approx(score.value)
                continue
            best = max if score.higher_is_better else min
            key = "max" if score.higher_is_better else "min"
            assert run.summary[name] == {key: pytest.approx(best(seen))}
        assert run.summary["outcome"] == record.outcome.status == "finished"
        assert run.exit_code == 0


def test_a_diverged_cell_ends_well_with_its_outcome(corpus, tmp_path):
    overrides = tiny(corpus, tmp_path / "runs", *SINKS, "optim.lr=1e30", "schedule=constant")
    overrides = [item for item in overrides if not item.startswith("schedule.")]
    output = normlab("train", *overrides, log=tmp_path / "log")
    ((_, record),) = RunStore(tmp_path / "runs").entries()
    assert record.outcome.status == "diverged", output
    run = read(next((tmp_path / "runs").rglob("run-*.wandb")))
    assert run.summary["outcome"] == "diverged"
    assert run.summary["outcome_step"] == record.outcome.step
    assert run.summary["outcome_reason"] == record.outcome.reason
    assert run.exit_code == 0


def test_a_killed_run_that_goes_on_has_each_step_once(corpus, tmp_path):
    overrides = tiny(corpus, tmp_path / "runs", *SINKS)
    normlab("train", *overrides, log=tmp_path / "log1", prepare=_dies)
    assert not list(tmp_path.rglob("record.json"))
    normlab("train", *overrides, log=tmp_path / "log2")
    ((folder, record),) = RunStore(tmp_path / "runs").entries()
    first, second = files(folder)
    assert first.name == second.name
    steps = [row["_step"] for row in read(second).history]
    assert steps == sorted({json.loads(line)["step"] for line in (folder / "metrics.jsonl").open()})
    assert record.outcome.status == "finished"


def test_every_metric_of_the_workspace_is_one_that_runs_write(cells):
    written: set[str] = set()
    for run in cells.values():
        written |= {name for row in run.history for name in row}
        for name, value in run.summary.items():
            written |= {f"{name}.{key}" for key in value} if isinstance(value, dict) else {name}
    written |= {"test/mlm_accuracy", "valid/mlm_accuracy"}  # of language models
    panels = [name for kinds in SECTIONS.values() for names in kinds.values() for name in names]
    assert len(panels) > 15 and set(panels) - written == set()
