"""The translation run beside one like it with something changed."""

from collections.abc import Sequence

from normlab.card.finding import Cell, Finding
from normlab.card.runs import TRANSLATION, carry_out
from normlab.card.subject import Examined
from normlab.records.record import RunRecord

SCORES = ("test/nll", "test/bleu")
COLUMNS = ("", *SCORES, "how it ended")


def against_usual(
    examined: Examined, question: str, usual: str, other: str, changed: Sequence[str], title: str
) -> Finding:
    """Train the first translation run again with changed values, and compare the two.

    `usual` and `other` name the two in the table; `title` is the column of the board, which shows
    how much larger the loss became.
    """
    seed = examined.sizes.seeds[0]
    first = carry_out(examined.config(TRANSLATION, seed=seed))
    second = carry_out(examined.config(TRANSLATION, *changed, seed=seed))
    rows = [_row(usual, first), _row(other, second)]
    figures = {"changed": list(changed), "seed": seed, "rows": rows}
    worse = _lost(first, second)
    cell: Cell = "diverged" if second.outcome.status != "finished" else worse
    return Finding(question, _answer(first, second, other), figures, COLUMNS, rows, {title: cell})


def _row(name: str, record: RunRecord) -> tuple[Cell, ...]:
    scores = [record.scores.get(score) for score in SCORES]
    return name, *(None if s is None else float(s.value) for s in scores), _ended(record)


def _ended(record: RunRecord) -> str:
    outcome = record.outcome
    where = f" in {outcome.layer}" if outcome.layer else ""
    return f"{outcome.status} at step {outcome.step}{where}"


def _lost(first: RunRecord, second: RunRecord) -> float | None:
    both = [record.scores.get(SCORES[0]) for record in (first, second)]
    if both[0] is None or both[1] is None:
        return None
    return float(both[1].value) - float(both[0].value)


def _answer(first: RunRecord, second: RunRecord, other: str) -> str:
    worse = _lost(first, second)
    if worse is None:
        return f"{other}: {_ended(second)}; else: {_ended(first)}"
    return (
        f"{SCORES[0]} changes by {worse:+.3f}, to {second.scores[SCORES[0]].value:.4g} (one seed)"
    )
