"""The questions of a card that need training: how well do models train, and at what rates?"""

from collections.abc import Mapping
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from normlab.config.folders import own_line
from normlab.config.plain import to_dict
from normlab.errors import UserError
from normlab.findings.finding import AnswerTable, Finding
from normlab.findings.question import question
from normlab.inspection.card import Examined, trained_record
from normlab.records.record import plain
from normlab.records.store import METRICS_FILE, RunStore, read_rows, series
from normlab.training.build import build_model, build_task

if TYPE_CHECKING:
    from omegaconf import DictConfig

FIRST_RATE = 1e-3
TRAINS = "trains"


@question("translation", of="card")
def translation(examined: Examined) -> Finding:
    """How well does a model learn to translate in a short run (task=toy)?

    Published cards used an earlier built-in corpus; new cards use the current one.
    """
    return short_runs(examined, "translation", {"test/nll": "toy nll", "test/bleu": "toy BLEU"})


@question("language_model", of="card")
def language_model(examined: Examined) -> Finding:
    """How well does a causal language model learn in a short run (task=lm)?"""
    return short_runs(examined, "language_model", {"test/loss": "lm loss"})


@question("bert", of="card")
def bert(examined: Examined) -> Finding:
    """How well does BERT learn in a short run (task=mlm)?"""
    return short_runs(examined, "bert", {"test/mlm_loss": "bert loss"})


@question("pictures", of="card")
def pictures(examined: Examined) -> Finding:
    """How well does a residual network learn to classify images in a short run (task=digits)?

    The norm follows each convolution of a small network, which has no placement option, none of the
    text models' norm sites, and no padding. A norm that fails there is skipped.
    """
    config = to_dict(examined.config("pictures"))
    task = build_task(config)
    try:
        task.losses(build_model(config, task), task.batch("train", range(8)))
    except UserError as error:
        return Finding.none(f"on images: {error}")
    except Exception as error:  # a norm's own code may raise anything
        first = str(error).partition("\n")[0]
        at = f" ({line})" if (line := own_line(error)) else ""
        return Finding.none(f"on images the norm raises {type(error).__name__}: {first}{at}")
    titles = {"test/loss": "digits loss", "test/accuracy": "digits acc"}
    return short_runs(examined, "pictures", titles)


def short_runs(examined: Examined, task: str, titles: Mapping[str, str]) -> Finding:
    """Train the short runs of a task, one per seed.

    `titles` maps the names of scores to their columns on the board.
    """
    values: dict[str, Any] = {"steps": examined.steps(task)}
    for name in ("higher_is_better", "floors", "curves", "diverged", "runs"):
        values[name] = {}
    scores: dict[str, dict[str, float]] = {name: {} for name in titles}
    lost: dict[str, int] = values["diverged"]
    seeds = [*map(str, examined.seeds(task))]
    for seed in seeds:
        config = examined.config(task, seed=int(seed))
        record = trained_record(config)
        values["runs"][seed] = record.run_id
        values["curves"][seed] = sorted(series(_metrics(config), "valid/loss"))
        if record.outcome.status != "finished":
            lost[seed] = record.outcome.step
        for name in scores.keys() & record.scores.keys():
            scores[name][seed] = float(record.scores[name].value)
            values["higher_is_better"][name] = record.scores[name].higher_is_better
            if (floor := record.floors.get(name.partition("/")[2])) is not None:
                values["floors"][name] = float(floor)
    values["scores"] = scores
    if lost:
        steps = ", ".join(f"seed {seed} at step {step}" for seed, step in lost.items())
        answer = f"diverged in {len(lost)} of {len(seeds)} runs: {steps}"
        board = dict.fromkeys(titles.values(), f"diverged {len(lost)}/{len(seeds)}")
        return Finding(answer, plain(values), board=board)
    mean = {name: fmean(by_seed.values()) for name, by_seed in scores.items()}
    floors = {k: f" (untrained baseline {v:.4g})" for k, v in values["floors"].items()}
    scored = ", ".join(f"{name} {value:.4g}{floors.get(name, '')}" for name, value in mean.items())
    answer = f"{scored} after {values['steps']} updates; seeds: {', '.join(seeds)}"
    board = {title: mean[name] for name, title in titles.items()}
    return Finding(answer, plain(values), board=board)


def _metrics(config: "DictConfig") -> Any:
    return read_rows(RunStore(config.runs_dir).run_dir(to_dict(config)) / METRICS_FILE)


class RateTrial(NamedTuple):
    """A run at one learning rate, with its training loss (None unless finished) and outcome."""

    training: float | None
    ended: str


@question("rate", of="card")
def rate(examined: Examined) -> Finding:
    """What is the largest learning rate that trains?

    Short runs use a constant rate after a short warm-up, starting at 0.001. The rate is doubled
    until a run does not train; if 0.001 itself does not train, it is halved until a run does. A run
    trains if its training loss over the last tenth is below the loss of word frequencies,
    which a model reaches by learning only its biases.
    """
    tried: dict[float, RateTrial] = {}
    rate, largest = FIRST_RATE, 0.0
    while rate not in tried and len(tried) < examined.sizes.most_rates:
        tried[rate] = _try(examined, rate)
        largest = max((r for r, trial in tried.items() if trial.ended == TRAINS), default=0.0)
        rate = 2 * largest or rate / 2
    is_open = largest > 0 and 2 * largest not in tried
    steps = examined.sizes.rate_steps
    values = {"steps": steps, "largest": largest or None, "open": is_open}
    rows = [(rate, *trial) for rate, trial in sorted(tried.items())]
    table = AnswerTable(("learning rate", "training loss", "how it ended"), rows)
    if not largest:
        answer = f"none of {min(tried):g} to {max(tried):g} trains in {steps} updates"
        return Finding(answer, values, table, board={"largest lr": "none"})
    bound = ", the largest rate tried" if is_open else f"; {2 * largest:g} does not"
    answer = f"{largest:g}{bound} ({steps} updates, training loss below that of word frequencies)"
    return Finding(answer, values, table, board={"largest lr": f"{largest:g}{'+' * is_open}"})


def _try(examined: Examined, rate: float) -> RateTrial:
    steps = examined.sizes.rate_steps
    config = examined.config(
        "translation",
        *(f"optim.lr={rate}", "schedule=constant", f"schedule.warmup={max(1, steps // 5)}"),
        *examined.sizes.rate,
        *(f"budget.steps={steps}", f"validate.every={steps}"),
        f"observe.log_every={max(1, steps // 10)}",
    )
    record = trained_record(config)
    outcome = record.outcome
    if outcome.status != "finished":
        where = f" in {outcome.layer}" if outcome.layer else ""
        return RateTrial(None, f"{outcome.status} at step {outcome.step}{where}")
    _, training = series(_metrics(config), "train/loss")[-1]  # over the last tenth of the run
    ended = TRAINS if training < record.floors["loss"] else "no better than word frequencies"
    return RateTrial(training, ended)
