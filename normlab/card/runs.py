"""The runs that examinations are made of."""

from collections.abc import Collection, Mapping
from statistics import fmean
from typing import TYPE_CHECKING, Any

from normlab.card.finding import Cell, Finding
from normlab.card.subject import Examined
from normlab.config import to_dict
from normlab.health.subject import Subject, subject_of_run
from normlab.records.canonical import plain
from normlab.records.record import RunRecord
from normlab.records.rows import read_rows, series
from normlab.records.store import RunStore
from normlab.run import train

if TYPE_CHECKING:
    from omegaconf import DictConfig

TRANSLATION = "translation"


def carry_out(config: "DictConfig") -> RunRecord:
    """Return the record of a run, made now unless it is there; KeyboardInterrupt if interrupted."""
    record = train(config)
    if record.outcome.status == "interrupted":
        raise KeyboardInterrupt
    return record


def trained(examined: Examined) -> Subject | None:
    """Return the model of the translation run of the first seed; None where it diverged."""
    config = examined.config(TRANSLATION, seed=examined.sizes.seeds[0])
    if carry_out(config).outcome.status != "finished":
        return None
    return subject_of_run(RunStore(config.runs_dir).run_dir(to_dict(config)), [])


def diverged(question: str) -> Finding:
    """Return the finding of a question about a trained model where there is none."""
    return Finding.none(question, "the translation run diverged, so there is no trained model")


def short_runs(examined: Examined, task: str, question: str, titles: Mapping[str, str]) -> Finding:
    """Train the short runs of a task, one a seed.

    `titles` are the columns of the board by the names of their scores.
    """
    records: dict[int, RunRecord] = {}
    curves: dict[str, list[Any]] = {}
    for seed in examined.seeds(task):
        config = examined.config(task, seed=seed)
        records[seed] = carry_out(config)
        folder = RunStore(config.runs_dir).run_dir(to_dict(config))
        rows = read_rows(folder / "metrics.jsonl")
        curves[str(seed)] = sorted(series(rows, "valid/loss"))
    scores = {name: _by_seed(records, name) for name in titles}
    lost = [seed for seed, record in records.items() if record.outcome.status != "finished"]
    figures = {
        "steps": examined.steps(task),
        "scores": scores,
        "higher_is_better": _directions(records.values(), titles),
        "floors": _floors(records.values(), titles),
        "curves": curves,
        "diverged": {str(seed): records[seed].outcome.step for seed in lost},
        "runs": {str(seed): record.run_id for seed, record in records.items()},
    }
    if lost:
        word = f"diverged {len(lost)}/{len(records)}"
        cells: dict[str, Cell] = dict.fromkeys(titles.values(), word)
    else:
        cells = {title: fmean(scores[name].values()) for name, title in titles.items()}
    return Finding(question, _answer(figures, len(records)), plain(figures), cells=cells)


def _by_seed(records: Mapping[int, RunRecord], name: str) -> dict[str, float]:
    found = {seed: record.scores.get(name) for seed, record in records.items()}
    return {str(seed): score.value for seed, score in found.items() if score is not None}


def _directions(records: Collection[RunRecord], names: Mapping[str, str]) -> dict[str, bool]:
    return {
        name: record.scores[name].higher_is_better
        for record in records
        for name in names
        if name in record.scores
    }


def _floors(records: Collection[RunRecord], names: Mapping[str, str]) -> dict[str, float]:
    floors = {key: value for record in records for key, value in record.floors.items()}
    return {name: floors[key] for name in names if (key := name.partition("/")[2]) in floors}


def _answer(figures: Mapping[str, Any], count: int) -> str:
    lost = figures["diverged"]
    if lost:
        steps = ", ".join(f"seed {seed} at step {step}" for seed, step in lost.items())
        return f"diverged in {len(lost)} of {count} runs: {steps}"
    parts = [
        f"{name} {fmean(values.values()):.4g}"
        + (
            f" (without learning {figures['floors'][name]:.4g})"
            if name in figures["floors"]
            else ""
        )
        for name, values in figures["scores"].items()
    ]
    return f"{', '.join(parts)} after {figures['steps']} updates, mean of {count} seeds"
