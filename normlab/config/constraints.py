"""The table of constraints: which values the keys of a run's config may have, and in what unit.

Types are the schema's and the classes' business. This is what types cannot say: ranges, lengths of
lists, and values that belong together. A value that cannot work is refused when the run is
composed, before it has cost anything, and what ends as "diverged" is never a wrong value. Messages,
`normlab list keys` and tests are made of this table. Numbers without a row must be finite.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from normlab.config.sites import NORM_KEYS, SITES, misplaced
from normlab.machine import MOST_THREADS

Real = int | float
_NOT_FINITE = ("nan", "inf", "-inf")  # how records write numbers that are not finite
_DIGITS = 18  # of a whole number


@dataclass(frozen=True)
class Constraint:
    """The range of a number, or of each number in a list.

    Attributes:
        low, high: the ends of the range; None is no end.
        above, below: leave the end itself out.
        whole: no fractions.
        infinite: infinity has a meaning.
        words: values beside numbers, such as `epoch`. One that ends in N stands for all with a
            number in its place: `interleaved-N` for `interleaved-8`.
        length: of a list; 0 is any list of at least one.
    """

    low: Real | None = None
    high: Real | None = None
    unit: str = ""
    above: bool = False
    below: bool = False
    whole: bool = False
    infinite: bool = False
    words: tuple[str, ...] = ()
    length: int | None = None

    @property
    def rule(self) -> str:
        """Say what is allowed, to follow the key and its value: `must be above 0`."""
        bounds = _bounds(self)
        kind = "whole number" if self.whole else "number"
        if self.length is not None:
            count = f"{self.length} {kind}s" if self.length else f"{kind}s"
            text = f"must be a list of {count}" + (f", each {bounds}" if bounds else "")
        elif not bounds:
            text = f"must be a finite {kind}"
        elif bounds == "at least 0":
            text = "must not be negative"
        else:
            text = f"must be {bounds}"
        return text + "".join(f", or {word}" for word in self.words)

    def problem(self, value: object) -> str | None:
        """Return what is wrong with a value, to follow it in a message; None where it fits."""
        if isinstance(value, str) and any(self._is(word, value) for word in self.words):
            return None
        if self.length is None:
            return None if self._fits(value) else self._with_unit(value)
        items = list(value) if isinstance(value, list | tuple) else []
        if not items or (self.length and len(items) != self.length):
            return self._with_unit(value)
        return None if all(map(self._fits, items)) else self._with_unit(value)

    def _is(self, word: str, value: str) -> bool:
        stem = word.removesuffix("N")
        digits = value.removeprefix(stem)
        if stem == word or digits == value:
            return value == word
        plain = digits.isdecimal() and len(digits) <= _DIGITS
        return plain and str(int(digits)) == digits and self._fits(int(digits))

    def _with_unit(self, value: object) -> str:
        unit = f" ({self.unit})" if self.unit else ""
        if self.length is not None or number(value) is not None:
            return self.rule + unit
        if self.words:
            of_what = f" of {self.unit}" if self.unit else ""
            return f"is neither a number{of_what} nor {' or '.join(self.words)}"
        return f"is not a {'whole ' if self.whole else ''}number; it {self.rule}{unit}"

    def _fits(self, value: object) -> bool:
        found = number(value)
        if found is None or math.isnan(found) or (math.isinf(found) and not self.infinite):
            return False
        if self.whole and found != int(found):
            return False
        if self.low is not None and (found < self.low or (self.above and found == self.low)):
            return False
        high = self.high
        return high is None or found < high or (not self.below and found == high)


def _bounds(constraint: Constraint) -> str:
    low, high = constraint.low, constraint.high
    from_low = None if low is None else f"{'above' if constraint.above else 'at least'} {low:g}"
    to_high = None if high is None else f"{'below' if constraint.below else 'at most'} {high:.15g}"
    return " and ".join(part for part in (from_low, to_high) if part)


def number(value: object) -> float | None:
    """Return the number that a value of a config or a record is, None where it is none."""
    if isinstance(value, str) and value in _NOT_FINITE:
        return float(value)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


_LARGEST = 2**63 - 1  # what torch, numpy and files of data hold as a whole number
_LONGEST = 4096  # characters of a value


def _rows(rule: Constraint, *keys: str) -> dict[str, Constraint]:
    return dict.fromkeys(keys, rule)


def _count(unit: str, *, low: int = 1, high: Real | None = None) -> Constraint:
    above = low == 1
    return Constraint(0 if above else low, high, unit, above=above, whole=True)


def _size(unit: str, high: Real = 2**31 - 1) -> Constraint:
    return Constraint(1, high, unit, whole=True)


_POSITIVE = Constraint(0, above=True)
_SHARE_OF_RUN = Constraint(0, 1, "share of the run's steps")
_NOT_NEGATIVE = Constraint(0)
_BELOW_ONE = Constraint(0, 1, below=True)
_RATE = Constraint(0, above=True, unit="learning rate")
_RATE_OR_ZERO = Constraint(0, unit="learning rate")
_LENGTH = _count("tokens", low=2, high=2**31 - 1)
_SEED = Constraint(0, 10**12, whole=True)
_OF_A_NORM = {
    "eps": Constraint(0, unit="added to the variance"),
    "momentum": Constraint(0, 1, "weight of the newest batch", above=True),
    "backward_momentum": Constraint(0, 1, "weight of the newest batch's gradient", above=True),
    "ghost": replace(_count("sequences"), words=("interleaved-N",)),
    "window": _count("batches"),
    **_rows(_SHARE_OF_RUN, "warmup_share", "blend_share", "correction_share"),
    **_rows(_count("steps", low=0), "warmup_steps", "blend_steps", "correction_steps"),
    "start": Constraint(0, 1, "share of layer norm"),
    **_rows(_NOT_NEGATIVE, "penalty_mean", "penalty_var", "noise_shift"),
    "noise_scale": Constraint(1, unit="largest factor of a deviation"),
    "r_max": Constraint(1, unit="largest ratio of deviations"),
    "d_max": Constraint(0, unit="largest difference of means, in deviations"),
    "groups": _size("groups of features"),
    "num_positions": _size("rows of running statistics"),
    "share": Constraint(0, 1, "share of the features", above=True),
    **_rows(Constraint(unit="first value"), "alpha", "shift"),
    **_rows(Constraint(), "k", "scale"),
}
_OF_A_SEARCH = {
    "beam": _size("hypotheses", 1000),
    "length_penalty": Constraint(unit="exponent of the length"),
    "length_factor": Constraint(0, unit="tokens a source token"),
    "length_offset": Constraint(0, unit="tokens", whole=True),
}
CONSTRAINTS: Mapping[str, Constraint] = {
    **_rows(_SEED, "seed", "model.permutation_seed"),
    **_rows(_count("sequences"), "batch_size", "task.batch_size", "task.eval_batch_size"),
    **_rows(_count("tokens"), "max_tokens", "task.max_tokens", "budget.tokens"),
    **_rows(_count("micro-batches"), "accumulate", "task.accumulate"),
    "clip_norm": Constraint(0, above=True, unit="gradient norm"),
    "freeze_statistics": _SHARE_OF_RUN,
    "divergence_factor": Constraint(0, above=True, infinite=True, unit="times the first loss"),
    "budget.steps": _count("steps"),
    "budget.epochs": Constraint(0, above=True, unit="epochs"),
    "budget.minutes": Constraint(0, above=True, unit="minutes"),
    "validate.every": replace(_count("steps"), words=("epoch",)),
    "validate.patience": _count("validations"),
    "validate.average": _count("validations", low=0),
    "validate.recalibration_batches": _count("batches"),
    **_rows(_count("steps"), "observe.log_every", "observe.checkpoint_every"),
    "observe.rank_timeout": Constraint(0, 10**5, "minutes", above=True),
    "observe.threads": _count("threads; four times the cores here at most", high=MOST_THREADS),
    "observe.processes": _count("processes; four times the cores here at most", high=MOST_THREADS),
    **_rows(Constraint(length=0), "observe.targets.*", "task.targets.*"),
    "observe.test_seen": _count("training examples", low=0),
    "observe.test_noise": Constraint(0, 100, "of the input's deviation", above=True, length=0),
    "observe.probe.*.every": _count("steps"),
    "observe.probe.*.samples": _count("samples", low=2),
    "observe.probe.*.tokens": _count("tokens of a sample", low=2),
    **_rows(
        _count("values", low=2, high=10**7), "observe.probe.*.window", "observe.probe.*.min_history"
    ),
    "observe.probe.*.smooth": _count("values"),
    "observe.probe.*.step": _count("step", low=0),
    **_rows(_POSITIVE, "observe.probe.*.threshold", "observe.probe.*.eps"),
    **_rows(
        Constraint(0, 10**6, "seconds"),
        *("observe.sink.*.connect_seconds", "observe.sink.*.finish_seconds"),
    ),
    **{f"{key}.{name}": row for key in (*NORM_KEYS, "sites.*") for name, row in _OF_A_NORM.items()},
    "placement.share": Constraint(0, 1, "share of the layers"),
    "placement.start": Constraint(unit="first value of the gains"),
    "placement.encoder_beta": _POSITIVE,
    "model.qk_length": _size("tokens"),
    "model.gain": Constraint(0, above=True, unit="first value of the gains"),
    "model.forget_bias": Constraint(unit="first value"),
    "model.initial_noise": Constraint(0, unit="standard deviation"),
    "model.width": _size("filters"),
    "model.blocks": _size("blocks"),
    "model.patch": _size("pixels"),
    **_rows(_size("features"), "model.dim", "model.ffn_dim"),
    "model.num_heads": _size("heads"),
    **_rows(_size("layers"), "model.depth", "model.num_layers"),
    **_rows(_size("layers"), "model.encoder_layers", "model.decoder_layers"),
    "model.max_positions": _size("positions"),
    **_rows(
        Constraint(0, 1, "probability", below=True),
        *("model.dropout", "model.attention_dropout", "model.activation_dropout"),
    ),
    **_rows(_RATE, "optim.lr", "schedule.lr"),
    "optim.betas": Constraint(0, 1, "decay of the two means", below=True, length=2),
    **_rows(_NOT_NEGATIVE, "optim.eps", "optim.weight_decay", "optim.groups.*.weight_decay"),
    **_rows(_BELOW_ONE, "optim.momentum", "task.label_smoothing"),
    "optim.alpha": Constraint(0, 1, below=True, unit="decay of the mean square"),
    "optim.dampening": Constraint(0, 1),
    "optim.groups.*.rate": Constraint(0, unit="times the learning rate"),
    "schedule.warmup": _count("steps", low=0),
    **_rows(_RATE_OR_ZERO, "schedule.initial", "schedule.minimum"),
    **_rows(_count("steps"), "schedule.total", "schedule.doubling"),
    "schedule.final": Constraint(0, 1, "share of the peak"),
    "task.vocab_size": _size("pieces", 10**7),
    **_rows(_LENGTH, "task.max_length", "task.eval_max_length", "task.length_change.max_length"),
    "task.one_by_one": _count("windows", low=0),
    "task.length_change.step": _count("step"),
    "task.test_batch_sizes": Constraint(1, unit="sequences", whole=True, length=0),
    "task.length_buckets": Constraint(1, unit="tokens", whole=True, length=0),
    "task.mask_share": Constraint(0, 1, "share", above=True),
    "task.mask_split": Constraint(0, 1, "shares of masked, random, unchanged", length=3),
    "task.short_share": Constraint(0, 1, "share of the examples"),
    **_rows(_size("pictures", 10**8), "task.source.valid_size", "task.source.train_size"),
    "task.augmentation.shift": Constraint(0, 1000, "pixels", whole=True),
    "task.corpus.seed": Constraint(0, 2**32 - 1, whole=True),
    "task.corpus.size": _size("training pairs", 10**8),
    **_rows(_size("pairs", 10**8), "task.corpus.valid_size", "task.corpus.test_size"),
    **_rows(
        Constraint(0, 1, "share of the text", above=True, below=True),
        *("task.corpus.valid_share", "task.corpus.test_share"),
    ),
    "task.corpus.max_documents": _count("documents"),
    **{f"task.valid_search.{key}": row for key, row in _OF_A_SEARCH.items()},
    **{f"task.test_search.{key}": row for key, row in _OF_A_SEARCH.items()},
}
_MAY_BE_EMPTY = (
    "task.test_batch_sizes",
    "task.length_buckets",
    "task.targets.*",
    "observe.test_noise",
)


@lru_cache(maxsize=4096)
def constraint_of(key: str) -> Constraint | None:
    """Return the constraint of a dotted key, None where the table has no row for it."""
    row = _row(key)
    return None if row is None else CONSTRAINTS[row]


def _row(key: str) -> str | None:
    if key in CONSTRAINTS:
        return key
    return next((row for row in CONSTRAINTS if "*" in row and fnmatchcase(key, row)), None)


def check(config: Mapping[str, Any]) -> None:
    """Raise ValueError naming the first key of a plain config whose value cannot work.

    `config` may lack keys, as the record of an older version does.
    """
    for key, value in _leaves(config, ""):
        problem = _problem(key, value)
        if problem is not None:
            raise ValueError(f"{key}={_shown(value)} {problem}")
    for problem in _together(config):
        raise ValueError(problem)


def _leaves(node: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield dotted keys and values; a list is a value. Not those of `choices`, which are names.

    What has an option is a node: the rule `*.k` of `sites` is one, and a norm may have a value `k`.
    """
    for name, value in node.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and ("option" in value or constraint_of(key) is None):
            if key != "choices":
                yield from _leaves(value, f"{key}.")
        else:
            yield key, value


def _problem(key: str, value: object) -> str | None:
    if value is None:
        return None
    constraint = constraint_of(key)
    if constraint is not None and not (value == [] and _row(key) in _MAY_BE_EMPTY):
        found = constraint.problem(value)
        if found is not None:
            return found
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, str) and (len(item) > _LONGEST or not item.isprintable()):
            return f"is no plain text of at most {_LONGEST} printable characters"
        if isinstance(item, int) and abs(item) > _LARGEST:
            return f"is beyond {_LARGEST}, the largest whole number that is computed with"
        infinite = constraint is not None and constraint.infinite
        if isinstance(item, float) and not math.isfinite(item) and not infinite:
            return "must be a finite number"
    return None


def _shown(value: object) -> str:
    """Write a value for a message: in one line, short, without control characters."""
    try:
        text = value if isinstance(value, str) and value.isprintable() else repr(value)
    except ValueError:  # a whole number of thousands of digits
        return "(a number too long to print)"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _together(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with values that fit one by one; any may be a node instead."""
    budget = _node(config, "budget")
    if budget and all(limit is None for limit in budget.values()):
        yield "budget: set at least one of budget.steps, epochs, tokens, minutes"
    model = _node(config, "model")
    dim = model.get("dim")
    yield from _divides(model, "model.num_heads", dim)
    for key, _, _, width in SITES:
        yield from _divides(_node(config, key), f"{key}.groups", model.get(width))
    yield from misplaced(_node(config, "choices"), model.get("qk_norm"))
    schedule = _node(config, "schedule")
    yield from _ordered(schedule, "schedule", "warmup", "total", strictly=True)
    for name in (probes := _node(_node(config, "observe"), "probe")):
        probe = _node(probes, name)
        for key in ("min_history", "smooth"):
            yield from _ordered(probe, f"observe.probe.{name}", key, "window", strictly=False)
    task = _node(config, "task")
    split = task.get("mask_split")
    if isinstance(split, list) and not math.isclose(math.fsum(split), 1, abs_tol=1e-6):
        yield f"task.mask_split={split} must sum to 1: the shares of masked, random, unchanged"
    corpus = _node(task, "corpus")
    valid, test = number(corpus.get("valid_share")), number(corpus.get("test_share"))
    if valid is not None and test is not None and valid + test >= 1:
        yield (
            f"task.corpus.valid_share={valid} and task.corpus.test_share={test} must sum "
            "to less than 1: the rest is trained on"
        )
    buckets = task.get("length_buckets") or []
    if isinstance(buckets, list) and buckets != sorted(set(buckets)):
        yield f"task.length_buckets={buckets} must increase"


def _divides(node: Mapping[str, Any], key: str, width: object) -> Iterator[str]:
    parts = node.get(key.rpartition(".")[2])
    if isinstance(parts, int) and isinstance(width, int) and width % parts:
        yield f"{key}={parts} does not divide the width {width}"


def _ordered(
    node: Mapping[str, Any], prefix: str, low: str, high: str, *, strictly: bool
) -> Iterator[str]:
    first, second = node.get(low), node.get(high)
    low_end, high_end = number(first), number(second)
    if low_end is None or high_end is None:
        return
    if low_end < high_end or (low_end == high_end and not strictly):
        return
    relation = "above" if strictly else "at least"
    yield f"{prefix}.{high}={second} must be {relation} {prefix}.{low}={first}"


def _node(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = config.get(key)
    return value if isinstance(value, Mapping) else {}
