"""The questions about short training runs: how well do models learn with the norm?"""

from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import NamedTuple

from normlab.config.folders import own_line
from normlab.config.run_config import to_dict
from normlab.errors import UserError
from normlab.findings.finding import Finding
from normlab.findings.question import question
from normlab.inspection.card.examined_norm import ExaminedNorm, trained_record
from normlab.records.record import RunRecord, plain
from normlab.records.store import METRICS_FILE, RunStore, read_rows, series
from normlab.reports.card_file import ShortRunValues
from normlab.training.build import build_model, build_task


@question("translation", of="card")
def translation(examined: ExaminedNorm) -> Finding:
    """How well does a model learn to translate in a short run (task=toy)?

    Published cards used an earlier version of the built-in corpus; new cards use the current one.
    """
    return finding_on_runs(
        examined, "translation", {"test/nll": "toy nll", "test/bleu": "toy BLEU"}
    )


@question("language_model", of="card")
def language_model(examined: ExaminedNorm) -> Finding:
    """How well does a causal language model learn in a short run (task=lm)?"""
    return finding_on_runs(examined, "language_model", {"test/loss": "lm loss"})


@question("bert", of="card")
def bert(examined: ExaminedNorm) -> Finding:
    """How well does BERT learn in a short run (task=mlm)?"""
    return finding_on_runs(examined, "bert", {"test/mlm_loss": "bert loss"})


@question("images", of="card")
def images(examined: ExaminedNorm) -> Finding:
    """How well does a residual network learn to classify images in a short run (task=digits)?

    The norm follows each convolution of a small network, which has no placement, none of the other
    norm sites of text models, and no padding. The question does not apply to a norm that fails in
    this network.
    """
    if why_not := why_not_on_images(examined):
        return Finding.none(why_not)
    titles = {"test/loss": "digits loss", "test/accuracy": "digits acc"}
    return finding_on_runs(examined, "images", titles)


def why_not_on_images(examined: ExaminedNorm) -> str:
    """Return why the norm cannot be used in the residual network, or "" if it can."""
    config = to_dict(examined.config("images"))
    task = build_task(config)
    try:
        task.losses(build_model(config, task), task.batch("train", range(8)))
    except UserError as error:
        return f"on images: {error}"
    except Exception as error:  # a norm's own code may raise anything
        first = str(error).partition("\n")[0]
        at = f" ({line})" if (line := own_line(error)) else ""
        return f"on images the norm raises {type(error).__name__}: {first}{at}"
    return ""


class ShortRun(NamedTuple):
    """The record of a short run, and its validation curve: pairs of a step and a loss."""

    record: RunRecord
    curve: list[tuple[float, float]]


def short_runs(examined: ExaminedNorm, task: str) -> dict[str, ShortRun]:
    """Train the short runs of a task, and return them keyed by seed."""
    runs: dict[str, ShortRun] = {}
    for seed in examined.seeds(task):
        config = examined.config(task, seed=seed)
        record = trained_record(config)
        metrics = read_rows(RunStore(config.runs_dir).run_dir(to_dict(config)) / METRICS_FILE)
        runs[str(seed)] = ShortRun(record, sorted(series(metrics, "valid/loss")))
    return runs


def finding_on_runs(examined: ExaminedNorm, task: str, titles: Mapping[str, str]) -> Finding:
    """Train the short runs of a task, and return the finding on their scores.

    `titles` maps the names of scores to the titles of their columns on the board.
    """
    runs = short_runs(examined, task)
    measured = values_of_runs(runs, titles, steps=examined.steps(task))
    values, diverged = plain(measured.values()), measured.diverged
    if diverged:
        board = dict.fromkeys(titles.values(), f"diverged {len(diverged)}/{len(runs)}")
        return Finding(_diverged_in_words(diverged, len(runs)), values, board=board)
    means = {name: fmean(by_seed.values()) for name, by_seed in measured.scores.items()}
    return Finding(
        _scores_in_words(means, measured.floors, measured.steps, runs),
        values,
        board={title: means[name] for name, title in titles.items()},
    )


def values_of_runs(
    runs: Mapping[str, ShortRun], scores: Iterable[str], *, steps: int
) -> ShortRunValues:
    """Return the scores, untrained baselines and curves of short runs of `steps` updates."""
    by_score: dict[str, dict[str, float]] = {name: {} for name in scores}
    higher_is_better, floors = dict[str, bool](), dict[str, float]()
    for seed, (record, _) in runs.items():
        for name in by_score.keys() & record.scores.keys():
            by_score[name][seed] = float(record.scores[name].value)
            higher_is_better[name] = record.scores[name].higher_is_better
            if (floor := record.floors.get(name.partition("/")[2])) is not None:
                floors[name] = float(floor)
    outcomes = {seed: run.record.outcome for seed, run in runs.items()}
    return ShortRunValues(
        steps=steps,
        scores=by_score,
        higher_is_better=higher_is_better,
        floors=floors,
        curves={seed: run.curve for seed, run in runs.items()},
        diverged={seed: end.step for seed, end in outcomes.items() if end.status != "finished"},
        runs={seed: run.record.run_id for seed, run in runs.items()},
    )


def _diverged_in_words(diverged: Mapping[str, int], number: int) -> str:
    steps = ", ".join(f"seed {seed} at step {step}" for seed, step in diverged.items())
    return f"diverged in {len(diverged)} of {number} runs: {steps}"


def _scores_in_words(
    means: Mapping[str, float], floors: Mapping[str, float], steps: int, seeds: Iterable[str]
) -> str:
    baselines = {name: f" (untrained baseline {floor:.4g})" for name, floor in floors.items()}
    scored = ", ".join(
        f"{name} {value:.4g}{baselines.get(name, '')}" for name, value in means.items()
    )
    return f"{scored} after {steps} updates; seeds: {', '.join(seeds)}"
