"""Formats the names and values of scores for readers, using the glossary."""

from typing import Literal

from normlab.metrics.glossary import POINTS, metric
from normlab.records.record import is_probe_metric

_SPLITS = {"train": "training", "valid": "validation"}
_OWN_DECIMALS = 3
"""Number of decimals for a user's own score, which is not in the glossary."""


def heading(name: str) -> str:
    """Return a metric's name for readers, such as `BLEU`, `test loss` or `loss spikes`."""
    if is_probe_metric(name):
        return _probe_heading(name)
    split, *conditions, last = name.split("/")
    known = metric(name)
    if conditions[:1] in (["steps_to"], ["tokens_to"]):
        target, _, value = last.rpartition("_")
        return f"{_words(conditions[0])} {_name(target)} {value}"
    text = _name(last)
    if split != "test" or (known and known.names_split):
        text = f"{_SPLITS.get(split, _words(split))} {text}"
    return ", ".join([text, *map(_words, conditions)])


def _probe_heading(name: str) -> str:
    """Return the name of a probe's metric for readers, with its site, if any, in brackets."""
    _, *key, place = name.split("/") if name.count("/") > 2 else (*name.split("/"), "")
    known = metric(name)
    text = known.name if known else _words(" ".join(key))
    return f"{text} ({_words(place)})" if place else text


def _name(key: str) -> str:
    """Return a score's display name, given the last part of its path."""
    known = metric(key)
    return known.name if known else _words(key)


def _words(key: str) -> str:
    return key.replace("_", " ")


def title(name: str) -> str:
    """Return a metric's name as the title of a chart, such as `Validation loss`."""
    text = heading(name)
    return text[0].upper() + text[1:]


def unit_of_differences(score: str) -> str:
    """Return the unit of differences in a score, such as `BLEU`, or "" if they have none."""
    known = metric(score)
    return known.name if known and known.unit == POINTS else ""


def score_text(value: float, score: str, *, sign: Literal["", "+"] = "") -> str:
    """Format a value with the decimals usual for its score, or with three digits from 1e5 on.

    With `sign="+"`, positive values have a sign. A value that rounds to zero never has a minus.
    """
    known = metric(score)
    decimals = known.decimals if known else _OWN_DECIMALS
    if decimals == 0 and abs(value) < 1e15:  # steps and tokens
        return f"{value:{sign}z,.0f}"
    form = "z.3g" if abs(value) >= 1e5 else f"z.{decimals}f"
    return f"{value:{sign}{form}}"


def difference_text(value: float, score: str) -> str:
    """Format a difference between two values of a score, with its sign."""
    return score_text(value, score, sign="+")
