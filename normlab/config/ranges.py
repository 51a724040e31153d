"""The allowed range of each number in a config, and checks of values that conflict.

An impossible value is refused when a run is composed, before it costs anything. A class of your own
annotates its parameters: `floor: Annotated[float, Range(above=0)]`. Nothing here imports torch.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from operator import ge, gt, le, lt
from typing import Any

from normlab.config.machine import MOST_THREADS
from normlab.config.schema import NORM_KEYS, misplaced

_ENDS = {
    "least": ("at least", ge),
    "above": ("above", gt),
    "most": ("at most", le),
    "below": ("below", lt),
}


@dataclass(frozen=True)
class Range:
    """The numbers that a key or a parameter may take.

    Attributes:
        least, above, most, below: bounds of the range; `above` and `below` exclude their bound.
        whole: only whole numbers are allowed.
        infinite: infinity is allowed.
        words: allowed values other than numbers, such as `epoch`; N stands for a number above 0.
        length: the value is a list of this many numbers; 0 means any length.
    """

    least: int | float | None = None
    above: int | float | None = None
    most: int | float | None = None
    below: int | float | None = None
    whole: bool = False
    infinite: bool = False
    words: tuple[str, ...] = ()
    length: int | None = None

    @property
    def allowed(self) -> str:
        """What is allowed, as text after `must be`: `above 0, a whole number`."""
        ends = [(word, getattr(self, name)) for name, (word, _) in _ENDS.items()]
        text = " and ".join(f"{word} {end:.15g}" for word, end in ends if end is not None)
        kind = "whole number" if self.whole else "number"
        if self.length is not None:
            several = f"a list of {self.length or ''} {kind}s".replace("  ", " ")
            text = ", each ".join(filter(None, (several, text)))
        elif self.whole or not text:
            text = f"{text}, a {kind}" if text else f"a finite {kind}"
        return text + "".join(f", or {word}" for word in self.words)

    def fits(self, value: object) -> bool:
        """Return whether a value is allowed."""
        if self.length is not None:
            if not isinstance(value, list | tuple) or self.length not in (0, len(value)):
                return False
            return all(map(replace(self, length=None).fits, value))
        if isinstance(value, str):
            words = (word.replace("N", "[1-9][0-9]{0,17}") for word in self.words)
            if any(re.fullmatch(word, value) for word in words):
                return True
        found = number(value)
        if found is None or math.isnan(found) or (math.isinf(found) and not self.infinite):
            return False
        ends = [(test, getattr(self, name)) for name, (_, test) in _ENDS.items()]
        within = all(test(found, end) for test, end in ends if end is not None)
        return within and not (self.whole and found % 1)


def number(value: object) -> float | None:
    """Return a value from a config or a record as a float; None if it is not a number."""
    if isinstance(value, str) and value in ("nan", "inf", "-inf"):  # as in records
        return float(value)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


_COUNT, _FROM_NONE = Range(above=0, whole=True), Range(least=0, whole=True)
_POSITIVE, _NOT_NEGATIVE = Range(above=0), Range(least=0)
_SHARE, _ABOVE_NONE = Range(least=0, most=1), Range(above=0, most=1)
_BELOW_ONE, _FROM_TWO = Range(least=0, below=1), Range(least=2, whole=True)

# Ranges by prefix and key; `norm.` also covers the rules of `sites`, and a star matches any name.
_TABLE: Sequence[tuple[Range, str, Sequence[str]]] = (
    (_COUNT, "", ("batch_size", "max_tokens", "accumulate", "budget.steps", "budget.tokens")),
    (_COUNT, "validate.", ("patience", "recalibration_batches")),
    (_COUNT, "observe.", ("log_every", "checkpoint_every", "probe.*.every", "probe.*.smooth")),
    (_COUNT, "norm.", ("window", "groups", "num_positions")),
    (_COUNT, "model.", ("dim", "ffn_dim", "num_heads", "width", "blocks", "patch", "depth")),
    (_COUNT, "model.", ("num_layers", "encoder_layers", "decoder_layers", "max_positions")),
    (_COUNT, "", ("model.qk_length", "schedule.total", "schedule.doubling")),
    (_COUNT, "task.", ("batch_size", "eval_batch_size", "max_tokens", "accumulate", "vocab_size")),
    (_COUNT, "task.", ("length_change.step", "source.valid_size", "source.train_size")),
    (_COUNT, "task.corpus.", ("size", "valid_size", "test_size", "max_documents")),
    (replace(_COUNT, words=("epoch",)), "validate.", ("every",)),
    (replace(_COUNT, words=("interleaved-N",)), "norm.", ("ghost",)),
    (replace(_COUNT, most=MOST_THREADS), "observe.", ("threads", "processes")),
    (replace(_COUNT, most=1000), "task.", ("*_search.beam",)),
    (replace(_COUNT, length=0), "task.", ("test_batch_sizes", "length_buckets")),
    (_FROM_NONE, "", ("validate.average", "observe.test_seen", "observe.probe.*.step")),
    (_FROM_NONE, "norm.", ("warmup_steps", "blend_steps", "correction_steps")),
    (_FROM_NONE, "", ("schedule.warmup",)),
    (_FROM_NONE, "task.", ("one_by_one", "augmentation.shift", "*_search.length_offset")),
    (Range(least=0, most=10**12, whole=True), "", ("seed", "model.permutation_seed")),
    (Range(least=0, most=2**32 - 1, whole=True), "task.", ("corpus.seed",)),
    (_FROM_TWO, "observe.probe.*.", ("samples", "tokens", "window", "min_history")),
    (_FROM_TWO, "task.", ("max_length", "eval_max_length", "length_change.max_length")),
    (_POSITIVE, "", ("clip_grad", "budget.epochs", "budget.minutes", "placement.encoder_beta")),
    (_POSITIVE, "observe.", ("probe.*.threshold", "probe.*.eps", "rank_timeout")),
    (_POSITIVE, "", ("model.gain", "optim.lr", "schedule.lr")),
    (replace(_POSITIVE, infinite=True), "", ("divergence_factor",)),
    (replace(_POSITIVE, most=100, length=0), "observe.", ("test_noise",)),
    (_NOT_NEGATIVE, "observe.sink.*.", ("connect_seconds", "finish_seconds")),
    (_NOT_NEGATIVE, "norm.", ("eps", "penalty_mean", "penalty_var", "noise_shift", "d_max")),
    (_NOT_NEGATIVE, "optim.", ("eps", "weight_decay", "groups.*.weight_decay", "groups.*.rate")),
    (_NOT_NEGATIVE, "schedule.", ("initial", "minimum")),
    (_NOT_NEGATIVE, "", ("model.initial_noise", "task.*_search.length_factor")),
    (Range(least=1), "norm.", ("noise_scale", "r_max")),
    (_SHARE, "norm.", ("warmup_share", "blend_share", "correction_share", "start")),
    (_SHARE, "", ("freeze_statistics", "placement.share", "optim.dampening")),
    (_SHARE, "", ("schedule.final", "task.short_share")),
    (replace(_SHARE, length=3), "task.", ("mask_split",)),
    (_ABOVE_NONE, "", ("norm.momentum", "norm.backward_momentum", "norm.share", "task.mask_share")),
    (_BELOW_ONE, "", ("optim.momentum", "optim.alpha", "task.label_smoothing")),
    (_BELOW_ONE, "model.", ("dropout", "attention_dropout", "activation_dropout")),
    (replace(_BELOW_ONE, length=2), "optim.", ("betas",)),
    (Range(above=0, below=1), "task.corpus.", ("valid_share", "test_share")),
    (Range(length=0), "", ("observe.targets.*", "task.targets.*")),
)
RANGES: Mapping[str, Range] = {
    f"{start}{name}": row for row, start, names in _TABLE for name in names
}


@lru_cache(maxsize=4096)
def range_of(key: str) -> Range | None:
    """Return the range of a dotted key; None if the table has none."""
    first, _, rest = key.partition(".")
    if first == "sites" or first in NORM_KEYS:
        key = f"norm.{key.rpartition('.')[2] if first == 'sites' else rest}"
    patterns = (row for name, row in RANGES.items() if fnmatchcase(key, name))
    return RANGES.get(key) or next(patterns, None)


def check(config: Mapping[str, Any]) -> None:
    """Raise ValueError, with the key, for the first invalid value of a plain config."""
    # Top-level keys first: a task's copy of `batch_size` is not what the user typed.
    for key, value in sorted(_leaves(config, ""), key=lambda leaf: leaf[0].count(".")):
        if problem := _problem(range_of(key), value):
            plain = isinstance(value, str) and value.isprintable()
            raise ValueError(f"{key}={value if plain else repr(value):.60} {problem}")
    for problem in _conflicts(config):
        raise ValueError(problem)


def _leaves(node: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield dotted keys and values, except `choices`; a list is one value.

    A mapping where a number is expected is yielded as a value, unless it is an option's node.
    """
    for name, value in node.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and ("option" in value or range_of(key) is None):
            yield from _leaves(value, f"{key}.") if key != "choices" else ()
        else:
            yield key, value


def _problem(row: Range | None, value: object) -> str | None:
    if row is not None and value is not None:
        return None if row.fits(value) else f"must be {row.allowed}"
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, str) and not item.isprintable():
            return "has characters that cannot be printed"
        if isinstance(item, float) and not math.isfinite(item):
            return "must be a finite number"
    return None


def _conflicts(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield a message for each conflict between values that are valid individually."""

    def get(key: str) -> Any:
        part, _, name = key.partition(".")
        return node.get(name) if isinstance(node := config.get(part), Mapping) else None

    if (budget := config.get("budget")) and all(limit is None for limit in budget.values()):
        yield "budget: set at least one of budget.steps, epochs, tokens, minutes"
    heads, dim = get("model.num_heads"), get("model.dim")
    if isinstance(heads, int) and isinstance(dim, int) and dim % heads:
        yield f"model.num_heads={heads} does not divide the width {dim}"
    yield from misplaced(config.get("choices") or {})
    warmup, total = number(get("schedule.warmup")), number(get("schedule.total"))
    if warmup is not None and total is not None and total <= warmup:
        yield f"schedule.total={total:g} must be above schedule.warmup={warmup:g}"
    if not isinstance(targets := get("observe.targets"), Mapping | None):
        yield f"observe.targets={targets!r:.60}: give 'observe.targets={{mlm_accuracy:[0.25,0.5]}}'"
    if (average := get("validate.average")) and get("validate.test") == "best":
        yield f"validate.test=best and validate.average={average}: give one of them"
