"""The table of constraints: which values the keys of a run's config may have, and in what unit.

Types are the schema's and the classes' business. This is what types cannot say: ranges, lengths of
lists, and values that belong together. A value that cannot work is refused when the run is
composed, before it has cost anything, and what ends as "diverged" is never a wrong value. Messages,
`normlab list keys` and tests are made of this table. Numbers without a row must be finite.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from normlab.config.constraint import Constraint, Real, number
from normlab.config.sites import NORM_KEYS, SITES, misplaced
from normlab.machine import MOST_THREADS

_LARGEST = 2**63 - 1  # what torch, numpy and files of data hold as a whole number
_LONGEST = 4096  # characters of a value


def _count(unit: str, *, low: int = 1, high: Real | None = None) -> Constraint:
    above = low == 1
    return Constraint(0 if above else low, high, unit, above=above, whole=True)


def _size(unit: str, high: Real) -> Constraint:
    return Constraint(1, high, unit, whole=True)


_POSITIVE = Constraint(0, above=True)
_SHARE_OF_RUN = Constraint(0, 1, "share of the run's steps")
_NOT_NEGATIVE = Constraint(0)
_PROBABILITY = Constraint(0, 1, below=True, unit="probability")
_SHARE = Constraint(0, 1, above=True, unit="share")
_RATE = Constraint(0, above=True, unit="learning rate")
_MODEL_SIZE = 2**31 - 1
_OF_A_NORM = {
    "eps": Constraint(0, unit="added to the variance"),
    "momentum": Constraint(0, 1, "weight of the newest batch", above=True),
    "backward_momentum": Constraint(0, 1, "weight of the newest batch's gradient", above=True),
    "ghost": replace(_count("sequences"), words=("interleaved-N",)),
    "window": _count("batches"),
    "warmup_share": _SHARE_OF_RUN,
    "warmup_steps": _count("steps", low=0),
    "blend_share": _SHARE_OF_RUN,
    "blend_steps": _count("steps", low=0),
    "start": Constraint(0, 1, "share of layer norm"),
    "correction_share": _SHARE_OF_RUN,
    "correction_steps": _count("steps", low=0),
    **dict.fromkeys(["penalty_mean", "penalty_var", "noise_shift"], _NOT_NEGATIVE),
    "noise_scale": Constraint(1, unit="largest factor of a deviation"),
    "r_max": Constraint(1, unit="largest ratio of deviations"),
    "d_max": Constraint(0, unit="largest difference of means, in deviations"),
    "groups": _size("groups of features", _MODEL_SIZE),
    "num_positions": _size("rows of running statistics", _MODEL_SIZE),
    "share": Constraint(0, 1, "share of the features", above=True),
    "alpha": Constraint(unit="first value"),
    "shift": Constraint(unit="first value"),
    "k": Constraint(),
    "scale": Constraint(),
}
CONSTRAINTS: Mapping[str, Constraint] = {
    "seed": Constraint(0, 10**12, whole=True),
    "batch_size": _count("sequences"),
    "max_tokens": _count("tokens"),
    "accumulate": _count("micro-batches"),
    "clip_norm": Constraint(0, above=True, unit="gradient norm"),
    "freeze_statistics": _SHARE_OF_RUN,
    "divergence_factor": Constraint(0, above=True, infinite=True, unit="times the first loss"),
    "budget.steps": _count("steps"),
    "budget.epochs": Constraint(0, above=True, unit="epochs"),
    "budget.tokens": _count("tokens"),
    "budget.minutes": Constraint(0, above=True, unit="minutes"),
    "validate.every": Constraint(0, unit="steps", above=True, whole=True, words=("epoch",)),
    "validate.patience": _count("validations"),
    "validate.average": _count("validations", low=0),
    "validate.recalibration_batches": _count("batches"),
    "observe.log_every": _count("steps"),
    "observe.checkpoint_every": _count("steps"),
    "observe.rank_timeout": Constraint(0, 10**5, "minutes", above=True),
    "observe.threads": _count("threads; four times the cores here at most", high=MOST_THREADS),
    "observe.processes": _count("processes; four times the cores here at most", high=MOST_THREADS),
    "observe.targets.*": Constraint(length=0),
    "observe.test_seen": _count("training examples", low=0),
    "observe.test_noise": Constraint(0, 100, "of the input's deviation", above=True, length=0),
    "observe.probe.*.every": _count("steps"),
    "observe.probe.*.window": _count("values", low=2, high=10**7),
    "observe.probe.*.samples": _count("samples", low=2),
    "observe.probe.*.tokens": _count("tokens of a sample", low=2),
    "observe.probe.*.min_history": _count("values", low=2, high=10**7),
    "observe.probe.*.smooth": _count("values"),
    "observe.probe.*.step": _count("step", low=0),
    "observe.probe.*.threshold": _POSITIVE,
    "observe.probe.*.eps": _POSITIVE,
    "observe.sink.*.connect_seconds": Constraint(0, 10**6, "seconds"),
    "observe.sink.*.finish_seconds": Constraint(0, 10**6, "seconds"),
    **{f"{site}.{key}": rule for site in NORM_KEYS for key, rule in _OF_A_NORM.items()},
    "placement.share": Constraint(0, 1, "share of the layers"),
    "placement.start": Constraint(unit="first value of the gains"),
    "placement.encoder_beta": _POSITIVE,
    **{f"sites.*.{key}": rule for key, rule in _OF_A_NORM.items()},
    "model.qk_length": _size("tokens", _MODEL_SIZE),
    "model.gain": Constraint(0, above=True, unit="first value of the gains"),
    "model.forget_bias": Constraint(unit="first value"),
    "model.initial_noise": Constraint(0, unit="standard deviation"),
    "model.permutation_seed": Constraint(0, 10**12, whole=True),
    "model.width": _size("filters", _MODEL_SIZE),
    "model.blocks": _size("blocks", _MODEL_SIZE),
    "model.patch": _size("pixels", _MODEL_SIZE),
    "model.dim": _size("features", _MODEL_SIZE),
    "model.ffn_dim": _size("features", _MODEL_SIZE),
    "model.num_heads": _size("heads", _MODEL_SIZE),
    "model.depth": _size("layers", _MODEL_SIZE),
    "model.encoder_layers": _size("layers", _MODEL_SIZE),
    "model.decoder_layers": _size("layers", _MODEL_SIZE),
    "model.num_layers": _size("layers", _MODEL_SIZE),
    "model.max_positions": _size("positions", _MODEL_SIZE),
    "model.dropout": _PROBABILITY,
    "model.attention_dropout": _PROBABILITY,
    "model.activation_dropout": _PROBABILITY,
    "optim.lr": _RATE,
    "optim.betas": Constraint(0, 1, "decay of the two means", below=True, length=2),
    "optim.eps": _NOT_NEGATIVE,
    "optim.weight_decay": _NOT_NEGATIVE,
    "optim.momentum": Constraint(0, 1, below=True),
    "optim.alpha": Constraint(0, 1, below=True, unit="decay of the mean square"),
    "optim.dampening": Constraint(0, 1),
    "optim.groups.*.rate": Constraint(0, unit="times the learning rate"),
    "optim.groups.*.weight_decay": _NOT_NEGATIVE,
    "schedule.lr": _RATE,
    "schedule.warmup": _count("steps", low=0),
    "schedule.initial": Constraint(0, unit="learning rate"),
    "schedule.minimum": Constraint(0, unit="learning rate"),
    "schedule.total": _count("steps"),
    "schedule.doubling": _count("steps"),
    "schedule.final": Constraint(0, 1, "share of the peak"),
    "task.batch_size": _count("sequences"),
    "task.max_tokens": _count("tokens"),
    "task.accumulate": _count("micro-batches"),
    "task.eval_batch_size": _count("sequences"),
    "task.vocab_size": _size("pieces", 10**7),
    "task.max_length": _count("tokens", low=2, high=_MODEL_SIZE),
    "task.eval_max_length": _count("tokens", low=2, high=_MODEL_SIZE),
    "task.label_smoothing": Constraint(0, 1, below=True),
    "task.one_by_one": _count("windows", low=0),
    "task.length_change.step": _count("step"),
    "task.length_change.max_length": _count("tokens", low=2, high=_MODEL_SIZE),
    "task.test_batch_sizes": Constraint(1, unit="sequences", whole=True, length=0),
    "task.length_buckets": Constraint(1, unit="tokens", whole=True, length=0),
    "task.mask_share": _SHARE,
    "task.mask_split": Constraint(0, 1, "shares of masked, random, unchanged", length=3),
    "task.short_share": Constraint(0, 1, "share of the examples"),
    "task.targets.*": Constraint(length=0),
    "task.source.valid_size": _size("pictures", 10**8),
    "task.source.train_size": _size("pictures", 10**8),
    "task.augmentation.shift": Constraint(0, 1000, "pixels", whole=True),
    "task.corpus.seed": Constraint(0, 2**32 - 1, whole=True),
    "task.corpus.size": _size("training pairs", 10**8),
    "task.corpus.valid_size": _size("pairs", 10**8),
    "task.corpus.test_size": _size("pairs", 10**8),
    "task.corpus.valid_share": Constraint(0, 1, "share of the text", above=True, below=True),
    "task.corpus.test_share": Constraint(0, 1, "share of the text", above=True, below=True),
    "task.corpus.max_documents": _count("documents"),
    **{
        f"task.{search}.{key}": rule
        for search in ("valid_search", "test_search")
        for key, rule in {
            "beam": _size("hypotheses", 1000),
            "length_penalty": Constraint(unit="exponent of the length"),
            "length_factor": Constraint(0, unit="tokens a source token"),
            "length_offset": Constraint(0, unit="tokens", whole=True),
        }.items()
    },
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
