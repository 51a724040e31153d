"""The range of each number of a config, and which values do not go together.

A value that cannot work is refused when a run is composed, before it has cost anything. `RANGES`
has the keys of the schema and of the options here; a class of your own gives the range with the
parameter: `floor: Annotated[float, Range(above=0)]`. Types are checked elsewhere, by the schema and
the classes. Messages and `normlab list keys` are made of the same ranges. No torch here.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from operator import ge, gt, le, lt
from typing import Any

from normlab.config.sites import NORM_KEYS, SITES, misplaced
from normlab.machine import MOST_THREADS

Real = int | float
_NOT_FINITE = ("nan", "inf", "-inf")  # how records write numbers that are not finite
_LARGEST = 2**63 - 1  # the largest whole number that torch, numpy and data files hold
_LONGEST = 4096  # characters of a value
_ENDS: Mapping[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "least": ("at least", ge),
    "above": ("above", gt),
    "most": ("at most", le),
    "below": ("below", lt),
}


@dataclass(frozen=True)
class Range:
    """The numbers that a key or a parameter takes.

    Attributes:
        least, above, most, below: the ends of the range; those of `above` and `below` are excluded.
        unit: what the number counts.
        whole: no fractions.
        infinite: infinity is allowed.
        words: values other than numbers, such as `epoch`; N in a word is any number above 0.
        length: the value is a list of so many numbers; 0 is any length.
    """

    least: Real | None = None
    above: Real | None = None
    most: Real | None = None
    below: Real | None = None
    unit: str = ""
    whole: bool = False
    infinite: bool = False
    words: tuple[str, ...] = ()
    length: int | None = None

    @property
    def allowed(self) -> str:
        """Say what is allowed, to follow `must be`: `above 0, a whole number`."""
        ends = [(word, getattr(self, name)) for name, (word, _) in _ENDS.items()]
        text = " and ".join(f"{word} {end:.15g}" for word, end in ends if end is not None)
        kind = "whole number" if self.whole else "number"
        if self.length is not None:
            count = f"{self.length} {kind}s" if self.length else f"{kind}s"
            text = f"a list of {count}" + (f", each {text}" if text else "")
        elif self.whole or not text:
            text = f"{text}, a {kind}" if text else f"a finite {kind}"
        return text + "".join(f", or {word}" for word in self.words)

    @property
    def rule(self) -> str:
        """The whole message on a wrong value, to follow it."""
        return f"must be {self.allowed}" + (f" ({self.unit})" if self.unit else "")

    def fits(self, value: object) -> bool:
        """Return whether a value is allowed."""
        if self.length is not None:
            one = replace(self, length=None)
            items: Any = value if isinstance(value, list | tuple) else [None]
            return (not self.length or len(items) == self.length) and all(map(one.fits, items))
        if isinstance(value, str) and any(_is(word, value) for word in self.words):
            return True
        found = number(value)
        if found is None or math.isnan(found) or (math.isinf(found) and not self.infinite):
            return False
        ends = [(test, getattr(self, name)) for name, (_, test) in _ENDS.items()]
        within = all(test(found, end) for test, end in ends if end is not None)
        return within and not (self.whole and found % 1)


def _is(word: str, value: str) -> bool:
    return re.fullmatch(word.replace("N", "[1-9][0-9]{0,17}"), value) is not None


def number(value: object) -> float | None:
    """Return the number that a value of a config or a record is, None if it is not a number."""
    if isinstance(value, str) and value in _NOT_FINITE:
        return float(value)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _count(unit: str, *, most: Real | None = None) -> Range:
    return Range(above=0, most=most, unit=unit, whole=True)


def _or_none(unit: str) -> Range:
    return Range(least=0, unit=unit, whole=True)


def _size(unit: str, most: Real = 2**31 - 1) -> Range:
    return Range(least=1, most=most, unit=unit, whole=True)


def _share(of: str = "") -> Range:
    return Range(least=0, most=1, unit=f"share of {of}" if of else "")


_POSITIVE, _NOT_NEGATIVE = Range(above=0), Range(least=0)
_BELOW_ONE = Range(least=0, below=1)
_SEQUENCES, _STEPS, _MICRO = _count("sequences"), _count("steps"), _count("micro-batches")
_TOKENS, _STEPS_OR_NONE = _count("tokens"), _or_none("steps")
_LENGTH = Range(least=2, most=2**31 - 1, unit="tokens", whole=True)
_VALUES = Range(least=2, most=10**7, unit="values", whole=True)
_THREADS = _count("four times the cores here at most", most=MOST_THREADS)
_SECONDS = Range(least=0, most=10**6, unit="seconds")
_MOMENTUM = Range(above=0, most=1, unit="weight of the newest batch")
_OF_RUN, _DROPOUT = _share("the run's steps"), Range(least=0, below=1, unit="probability")
_RATE, _RATE_OR_ZERO = Range(above=0, unit="learning rate"), Range(least=0, unit="learning rate")
_PAIRS, _IMAGES = _size("pairs", 10**8), _size("images", 10**8)
_PART_OF_TEXT = Range(above=0, below=1, unit="share of the text")

# By the start of the keys. `norm.` stands for every key of a norm and the rules of `sites`; a star
# stands for any name.
_TABLE: Mapping[str, Mapping[tuple[str, ...], Range]] = {
    "": {
        ("seed",): Range(least=0, most=10**12, whole=True),
        ("batch_size",): _SEQUENCES,
        ("max_tokens", "budget.tokens"): _TOKENS,
        ("accumulate",): _MICRO,
        ("clip_grad",): Range(above=0, unit="gradient norm"),
        ("freeze_statistics",): _OF_RUN,
        ("divergence_factor",): Range(above=0, infinite=True, unit="times the first loss"),
        ("budget.steps",): _STEPS,
        ("budget.epochs",): Range(above=0, unit="epochs"),
        ("budget.minutes",): Range(above=0, unit="minutes"),
        ("validate.every",): replace(_STEPS, words=("epoch",)),
        ("validate.patience",): _count("validations"),
        ("validate.average",): _or_none("validations"),
        ("validate.recalibration_batches",): _count("batches"),
    },
    "observe.": {
        ("log_every", "checkpoint_every", "probe.*.every"): _STEPS,
        ("rank_timeout",): Range(above=0, most=10**5, unit="minutes"),
        ("threads", "processes"): _THREADS,
        ("targets.*",): Range(length=0),
        ("test_seen",): _or_none("training examples"),
        ("test_noise",): Range(above=0, most=100, unit="of the input's deviation", length=0),
        ("probe.*.samples",): replace(_VALUES, unit="samples"),
        ("probe.*.tokens",): replace(_VALUES, unit="tokens of a sample"),
        ("probe.*.window", "probe.*.min_history"): _VALUES,
        ("probe.*.smooth",): _count("values"),
        ("probe.*.step",): _or_none("step"),
        ("probe.*.threshold", "probe.*.eps"): _POSITIVE,
        ("sink.*.connect_seconds", "sink.*.finish_seconds"): _SECONDS,
    },
    "norm.": {
        ("eps",): Range(least=0, unit="added to the variance"),
        ("momentum", "backward_momentum"): _MOMENTUM,
        ("ghost",): replace(_SEQUENCES, words=("interleaved-N",)),
        ("window",): _count("batches"),
        ("warmup_share", "blend_share", "correction_share"): _OF_RUN,
        ("warmup_steps", "blend_steps", "correction_steps"): _STEPS_OR_NONE,
        ("start",): _share("layer norm"),
        ("penalty_mean", "penalty_var", "noise_shift"): _NOT_NEGATIVE,
        ("noise_scale",): Range(least=1, unit="largest factor of a deviation"),
        ("r_max",): Range(least=1, unit="largest ratio of deviations"),
        ("d_max",): Range(least=0, unit="largest difference of means, in deviations"),
        ("groups",): _size("groups of features"),
        ("num_positions",): _size("rows of running statistics"),
        ("share",): Range(above=0, most=1, unit="share of the features"),
    },
    "placement.": {
        ("share",): _share("the layers"),
        ("encoder_beta",): _POSITIVE,
    },
    "model.": {
        ("permutation_seed",): Range(least=0, most=10**12, whole=True),
        ("qk_length",): _size("tokens"),
        ("gain",): Range(above=0, unit="first value of the gains"),
        ("initial_noise",): Range(least=0, unit="standard deviation"),
        ("width",): _size("filters"),
        ("blocks",): _size("blocks"),
        ("patch",): _size("pixels"),
        ("dim", "ffn_dim"): _size("features"),
        ("num_heads",): _size("heads"),
        ("depth", "num_layers", "encoder_layers", "decoder_layers"): _size("layers"),
        ("max_positions",): _size("positions"),
        ("dropout", "attention_dropout", "activation_dropout"): _DROPOUT,
    },
    "optim.": {
        ("lr",): _RATE,
        ("betas",): Range(least=0, below=1, unit="decay of the two means", length=2),
        ("eps", "weight_decay", "groups.*.weight_decay"): _NOT_NEGATIVE,
        ("momentum", "alpha"): _BELOW_ONE,
        ("dampening",): _share(),
        ("groups.*.rate",): Range(least=0, unit="times the learning rate"),
    },
    "schedule.": {
        ("lr",): _RATE,
        ("initial", "minimum"): _RATE_OR_ZERO,
        ("warmup",): _STEPS_OR_NONE,
        ("total", "doubling"): _STEPS,
        ("final",): _share("the peak"),
    },
    "task.": {
        ("batch_size", "eval_batch_size"): _SEQUENCES,
        ("max_tokens",): _TOKENS,
        ("accumulate",): _MICRO,
        ("targets.*",): Range(length=0),
        ("label_smoothing",): _BELOW_ONE,
        ("vocab_size",): _size("pieces", 10**7),
        ("max_length", "eval_max_length", "length_change.max_length"): _LENGTH,
        ("one_by_one",): _or_none("windows"),
        ("length_change.step",): _count("step"),
        ("test_batch_sizes",): Range(least=1, unit="sequences", whole=True, length=0),
        ("length_buckets",): Range(least=1, unit="tokens", whole=True, length=0),
        ("mask_share",): Range(above=0, most=1, unit="share of the tokens"),
        ("mask_split",): replace(_share("masked, random, unchanged"), length=3),
        ("short_share",): _share("the examples"),
        ("source.valid_size", "source.train_size"): _IMAGES,
        ("augmentation.shift",): Range(least=0, most=1000, unit="pixels", whole=True),
        ("corpus.seed",): Range(least=0, most=2**32 - 1, whole=True),
        ("corpus.size", "corpus.valid_size", "corpus.test_size"): _PAIRS,
        ("corpus.valid_share", "corpus.test_share"): _PART_OF_TEXT,
        ("corpus.max_documents",): _count("documents"),
        ("*_search.beam",): _size("hypotheses", 1000),
        ("*_search.length_factor",): Range(least=0, unit="tokens per source token"),
        ("*_search.length_offset",): _or_none("tokens"),
    },
}
RANGES: Mapping[str, Range] = {
    f"{start}{name}": row
    for start, rows in _TABLE.items()
    for names, row in rows.items()
    for name in names
}


@lru_cache(maxsize=4096)
def range_of(key: str) -> Range | None:
    """Return the range of a dotted key, None if the table has none."""
    first, _, rest = key.partition(".")
    if first == "sites" or first in NORM_KEYS:
        key = f"norm.{key.rpartition('.')[2] if first == 'sites' else rest}"
    found = RANGES.get(key)
    patterns = (row for name, row in RANGES.items() if "*" in name and fnmatchcase(key, name))
    return found if found is not None else next(patterns, None)


def check(config: Mapping[str, Any]) -> None:
    """Raise ValueError naming the first key of a plain config whose value cannot work."""
    for key, value in _leaves(config, ""):
        if problem := _problem(range_of(key), value):
            raise ValueError(f"{key}={_shown(value)} {problem}")
    for problem in _conflicts(config):
        raise ValueError(problem)


def _leaves(node: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield dotted keys and values; a list is a value. `choices` are names and have no range.

    A mapping where a number belongs is a wrong value, unless it is the node of an option: a rule of
    `sites` may end in the name of a norm's value.
    """
    for name, value in node.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and ("option" in value or range_of(key) is None):
            yield from _leaves(value, f"{key}.") if key != "choices" else ()
        else:
            yield key, value


def _problem(row: Range | None, value: object) -> str | None:
    if value is None:
        return None
    if row is not None and not row.fits(value):
        return row.rule
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, str) and (len(item) > _LONGEST or not item.isprintable()):
            return f"is no plain text of at most {_LONGEST} printable characters"
        if isinstance(item, int) and abs(item) > _LARGEST:
            return f"is beyond {_LARGEST}, the largest whole number"
        if isinstance(item, float) and not math.isfinite(item) and row is None:
            return "must be a finite number"
    return None


def _shown(value: object) -> str:
    """Write a value for a message: in one line, short, without control characters."""
    try:
        text = value if isinstance(value, str) and value.isprintable() else repr(value)
    except ValueError:  # a whole number of thousands of digits
        return "(a number too long to print)"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _conflicts(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with values that fit one by one."""

    def get(key: str) -> Any:
        node: Any = config
        for name in key.split("."):
            node = node.get(name) if isinstance(node, Mapping) else None
        return node

    if (budget := get("budget")) and all(limit is None for limit in budget.values()):
        yield "budget: set at least one of budget.steps, epochs, tokens, minutes"
    widths = {"model.num_heads": "dim", **{f"{site.key}.groups": site.width for site in SITES}}
    for key, width in widths.items():
        parts, size = get(key), get(f"model.{width}")
        if isinstance(parts, int) and isinstance(size, int) and size % parts:
            yield f"{key}={parts} does not divide the width {size}"
    yield from misplaced(get("choices") or {}, get("model.qk_norm"))
    warmup, total = number(get("schedule.warmup")), number(get("schedule.total"))
    if warmup is not None and total is not None and total <= warmup:
        yield (
            f"schedule.total={total:g} must be above schedule.warmup={warmup:g}: give more "
            "budget.steps, or a shorter warm-up"
        )
    if (split := get("task.mask_split")) and not math.isclose(math.fsum(split), 1, abs_tol=1e-6):
        yield f"task.mask_split={split} must sum to 1: the shares of masked, random, unchanged"
    buckets = get("task.length_buckets") or []
    if buckets != sorted(set(buckets)):
        yield f"task.length_buckets={buckets} must increase"
    if not isinstance(targets := get("observe.targets"), Mapping | None):
        yield (
            f"observe.targets={_shown(targets)}: give lists of values by the name of a validation "
            "score, as 'observe.targets={mlm_accuracy:[0.25,0.5]}'"
        )
    if (average := get("validate.average")) and get("validate.test") == "best":
        yield (
            f"validate.test=best and validate.average={average} name different weights to test: "
            "the best, or the mean of the last validations; give one of them"
        )
