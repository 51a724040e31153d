"""What is the largest learning rate that trains?

Short runs with a constant rate after a short warm-up: from 0.001 upwards, doubled until one does
not train. Where the first does not, two larger ones are tried before smaller ones, as 0.001 may be
too small as well as too large. A run trains if the training loss of its last tenth is below that of
the frequencies of words, which a model that only learned its biases has. The validation loss stands
beside it: in a run this short running statistics may lag behind a model that trains.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from normlab.card.finding import Finding
from normlab.card.runs import carry_out
from normlab.card.subject import Examined
from normlab.config import to_dict
from normlab.records.rows import METRICS_FILE, read_rows, series
from normlab.records.store import RunStore

QUESTION = "What is the largest learning rate that trains?"
COLUMNS = ("learning rate", "training loss", "validation loss", "how it ended")
FIRST = 1e-3
_UPWARDS = 2  # doublings before the rate is halved


@dataclass(frozen=True)
class Trial:
    """A run at a rate: its losses, where it has them, whether it trains, and how it ended."""

    training: float | None
    validation: float | None
    trains: bool
    ended: str


def examine(examined: Examined) -> Finding:
    """Try rates until one trains and the next larger one does not, or no more may be tried."""
    tried: dict[float, Trial] = {}
    rate: float | None = FIRST
    while rate is not None and len(tried) < examined.sizes.most_rates:
        tried[rate] = _try(examined, rate)
        rate = _next(tried)
    largest = max((rate for rate, trial in tried.items() if trial.trains), default=None)
    rows = [(rate, t.training, t.validation, t.ended) for rate, t in sorted(tried.items())]
    steps = examined.sizes.rate_steps
    figures = {
        "steps": steps,
        "largest": largest,
        "open": largest is not None and 2 * largest not in tried,
        "losses": {f"{rate:g}": trial.validation for rate, trial in tried.items()},
        "training_losses": {f"{rate:g}": trial.training for rate, trial in tried.items()},
    }
    if largest is None:
        answer = f"none of {min(tried):g} to {max(tried):g} trains in {steps} updates"
        return Finding(QUESTION, answer, figures, COLUMNS, rows, {"largest lr": "none"})
    bound = ", the largest that was tried" if figures["open"] else f"; {2 * largest:g} does not"
    answer = f"{largest:g}{bound} ({steps} updates, training loss below that of word frequencies)"
    text = f"{largest:g}" + ("+" if figures["open"] else "")
    return Finding(QUESTION, answer, figures, COLUMNS, rows, {"largest lr": text})


def _next(tried: Mapping[float, Trial]) -> float | None:
    """Return the rate to try next; None where one trains and twice it does not."""
    good = [rate for rate, trial in tried.items() if trial.trains]
    if good:
        return None if 2 * max(good) in tried else 2 * max(good)
    largest = max(tried)
    if largest < FIRST * 2**_UPWARDS and tried[largest].training is not None:
        return 2 * largest
    return min(tried) / 2


def _try(examined: Examined, rate: float) -> Trial:
    """Train a short run at a rate."""
    steps = examined.sizes.rate_steps
    config = examined.config(
        "translation",
        *(f"optim.lr={rate}", "schedule=constant", f"schedule.warmup={max(1, steps // 5)}"),
        *examined.sizes.rate,
        *(f"budget.steps={steps}", f"validate.every={steps}"),
        f"observe.log_every={max(1, steps // 10)}",
    )
    record = carry_out(config)
    if record.outcome.status != "finished":
        ended = f"{record.outcome.status} at step {record.outcome.step}"
        return Trial(None, None, trains=False, ended=ended)
    rows = read_rows(RunStore(config.runs_dir).run_dir(to_dict(config)) / METRICS_FILE)
    _, training = series(rows, "train/loss")[-1]  # of the last tenth
    trains = training < record.floors["loss"]
    ended = "trains" if trains else "stays at the frequencies of words"
    return Trial(training, record.scores["valid/loss"].value, trains, ended)
