"""What is the largest learning rate that trains?

Short runs with a constant rate after a short warm-up: from 0.001 upwards, doubled until one does
not train, or downwards, halved until one does. A run trains if it ends with a validation loss below
that of the frequencies of words, which a model that only learned its biases has.
"""

from normlab.card.finding import Finding
from normlab.card.runs import carry_out
from normlab.card.subject import Examined

QUESTION = "What is the largest learning rate that trains?"
COLUMNS = ("learning rate", "validation loss", "how it ended")
FIRST = 1e-3


def examine(examined: Examined) -> Finding:
    """Double the rate until a run does not train; halve it if the first one does not."""
    tried: dict[float, tuple[float | None, bool, str]] = {}
    rate, factor = FIRST, 2.0
    for _ in range(examined.sizes.most_rates):
        tried[rate] = _try(examined, rate)
        trains = tried[rate][1]
        if len(tried) == 1 and not trains:
            factor = 0.5
        elif trains != (factor > 1):
            break
        rate *= factor
    good = [rate for rate, (_, trains, _) in tried.items() if trains]
    largest = max(good, default=None)
    rows = [(rate, loss, ended) for rate, (loss, _, ended) in sorted(tried.items())]
    steps = examined.sizes.rate_steps
    figures = {
        "steps": steps,
        "largest": largest,
        "open": len(good) == len(tried),
        "losses": {f"{rate:g}": loss for rate, (loss, _, _) in tried.items()},
    }
    if largest is None:
        answer = f"none of {min(tried):g} to {max(tried):g} trains in {steps} updates"
        return Finding(QUESTION, answer, figures, COLUMNS, rows, {"largest lr": "none"})
    bound = ", the largest that was tried" if figures["open"] else f"; {2 * largest:g} does not"
    answer = f"{largest:g}{bound} ({steps} updates, loss below that of word frequencies)"
    text = f"{largest:g}" + ("+" if figures["open"] else "")
    return Finding(QUESTION, answer, figures, COLUMNS, rows, {"largest lr": text})


def _try(examined: Examined, rate: float) -> tuple[float | None, bool, str]:
    """Return the validation loss of a run at a rate, whether it trains, and how it ended."""
    steps = examined.sizes.rate_steps
    record = carry_out(
        examined.config(
            "translation",
            *(f"optim.lr={rate}", "schedule=constant", f"schedule.warmup={max(1, steps // 5)}"),
            *examined.sizes.rate,
            *(f"budget.steps={steps}", f"validate.every={steps}", f"observe.log_every={steps}"),
        )
    )
    if record.outcome.status != "finished":
        return None, False, f"{record.outcome.status} at step {record.outcome.step}"
    loss = record.scores["valid/loss"].value
    trains = loss < record.floors["loss"]
    return loss, trains, "trains" if trains else "stays at the frequencies of words"
