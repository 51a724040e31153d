"""The question about the largest learning rate that trains."""

from typing import NamedTuple

from normlab.config.run_config import to_dict
from normlab.findings.finding import AnswerTable, Finding
from normlab.findings.question import question
from normlab.inspection.card.examined_norm import ExaminedNorm, trained_record
from normlab.records.store import METRICS_FILE, RunStore, read_rows, series

FIRST_RATE = 1e-3


class RateTrial(NamedTuple):
    """A short run at one learning rate.

    Attributes:
        trains: whether the loss fell below the loss of word frequencies.
        training_loss: the loss over the last tenth of the run; None if the run did not finish.
        ended: how the run ended.
    """

    trains: bool
    training_loss: float | None
    ended: str


class Search(NamedTuple):
    """The trials, keyed by learning rate, and the largest rate that trains (0 if none does).

    If `is_open`, no larger rate was tried, so a larger one may also train.
    """

    trials: dict[float, RateTrial]
    largest: float
    is_open: bool


@question("rate", of="card")
def rate(examined: ExaminedNorm) -> Finding:
    """What is the largest learning rate that trains?

    In each short run, the learning rate is constant after a short warm-up. The first rate is 0.001.
    It is doubled until a run does not train or, if 0.001 does not train, halved until a run trains.
    A run trains if its training loss over the last tenth is below the loss of word frequencies,
    which a model reaches by learning only its biases.
    """
    search = largest_rate(examined)
    steps, largest = examined.sizes.rate_steps, search.largest
    shown = f"{largest:g}{'+' * search.is_open}" if largest else "none"
    return Finding(
        _in_words(search, steps),
        {"steps": steps, "largest": largest or None, "open": search.is_open},
        AnswerTable(
            ("learning rate", "training loss", "how it ended"),
            [(each, t.training_loss, t.ended) for each, t in sorted(search.trials.items())],
        ),
        board={"largest lr": shown},
    )


def largest_rate(examined: ExaminedNorm) -> Search:
    """Search for the largest learning rate that trains, as `rate` describes."""
    trials: dict[float, RateTrial] = {}
    rate, largest = FIRST_RATE, 0.0
    while rate not in trials and len(trials) < examined.sizes.most_rates:
        trials[rate] = rate_trial(examined, rate)
        largest = max((each for each, trial in trials.items() if trial.trains), default=0.0)
        rate = 2 * largest or rate / 2
    return Search(trials, largest, is_open=largest > 0 and 2 * largest not in trials)


def _in_words(search: Search, steps: int) -> str:
    largest, rates = search.largest, search.trials.keys()
    if not largest:
        return f"no rate from {min(rates):g} to {max(rates):g} trains in {steps} updates"
    bound = ", the largest rate tried" if search.is_open else f"; {2 * largest:g} does not"
    return f"{largest:g}{bound} ({steps} updates, training loss below that of word frequencies)"


def rate_trial(examined: ExaminedNorm, rate: float) -> RateTrial:
    """Train a short run of the translation task at this learning rate."""
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
        return RateTrial(False, None, f"{outcome.status} at step {outcome.step}{where}")
    metrics = read_rows(RunStore(config.runs_dir).run_dir(to_dict(config)) / METRICS_FILE)
    _, loss = series(metrics, "train/loss")[-1]  # over the last tenth of the run
    trains = loss < record.floors["loss"]
    return RateTrial(trains, loss, "trains" if trains else "no better than word frequencies")
