"""The range of each key of a config, in one table, and checks of values that conflict.

An impossible value is refused when a run is composed, before it costs anything, and without torch:
annotations of an option's own parameters, such as `Annotated[int, Meta(gt=0)]`, are checked later,
when its class is imported. Nothing here imports torch.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Literal

import msgspec

from normlab.config.machine import MOST_THREADS
from normlab.config.schema import NORM_KEYS, STACK_NORMS
from normlab.config.value_range import (
    ABOVE_NONE,
    BELOW_ONE,
    COUNT,
    COUNT_OR_EPOCH,
    FACTOR,
    FROM_NONE,
    FROM_TWO,
    NOISES,
    NOT_NEGATIVE,
    NUMBERS,
    POSITIVE,
    PROJECT,
    SEED,
    SHARE,
    TAGS,
    Range,
    list_of,
    number,
)
from normlab.errors import UserError

CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
"""Characters that no value may have: controls, marks that change the text's direction, and bytes
that are not UTF-8. Spaces and joiners of all scripts may occur in names."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,79}")
# Ranges by prefix and key; `norm.` also covers the rules of `sites`, and a star matches any name.
_TABLE: Sequence[tuple[Range, str, Sequence[str]]] = (
    (SEED, "", ("seed",)),
    (COUNT, "", ("batch_size", "max_tokens", "accumulate")),
    (POSITIVE, "", ("clip_grad",)),
    (FACTOR, "", ("divergence_factor",)),
    (SHARE, "", ("freeze_statistics",)),
    (COUNT, "budget.", ("steps", "tokens")),
    (POSITIVE, "budget.", ("epochs", "minutes")),
    (COUNT_OR_EPOCH, "validate.", ("every",)),
    (COUNT, "validate.", ("patience", "recalibration_batches", "limit")),
    (FROM_NONE, "validate.", ("average",)),
    (COUNT, "observe.", ("log_every", "checkpoint_every")),
    (POSITIVE, "observe.", ("rank_timeout",)),
    (number(int, gt=0, le=MOST_THREADS), "observe.", ("threads", "processes")),
    (TAGS, "observe.", ("tags",)),
    (NOISES, "observe.", ("test_noise", "test_weight_noise", "test_brightness")),
    (FROM_NONE, "observe.", ("test_seen",)),
    (COUNT, "observe.probe.*.", ("every", "smooth")),
    (COUNT, "norm.", ("ghost", "window", "groups", "num_positions")),
    (COUNT, "model.", ("dim", "ffn_dim", "num_heads", "width", "blocks", "patch", "depth")),
    (COUNT, "model.", ("num_layers", "encoder_layers", "decoder_layers", "max_positions")),
    (COUNT, "", ("model.qk_length", "model.rope.global_every")),
    (COUNT, "schedule.", ("total", "doubling")),
    (COUNT, "task.", ("batch_size", "eval_batch_size", "max_tokens", "accumulate", "vocab_size")),
    (COUNT, "task.", ("length_change.step", "source.valid_size", "source.train_size")),
    (COUNT, "task.corpus.", ("size", "valid_size", "test_size")),
    (number(int, gt=0, le=1000), "task.", ("*_search.beam",)),
    (list_of("numbers", COUNT), "task.", ("test_batch_sizes", "length_buckets")),
    (FROM_NONE, "observe.probe.*.", ("step",)),
    (FROM_NONE, "norm.", ("warmup_steps", "blend_steps", "correction_steps")),
    (FROM_NONE, "", ("schedule.warmup",)),
    (FROM_NONE, "task.", ("one_by_one", "augmentation.shift", "*_search.length_offset")),
    (SEED, "model.", ("permutation_seed",)),
    (number(int, ge=0, lt=2**32), "task.", ("corpus.seed",)),
    (FROM_TWO, "observe.probe.*.", ("samples", "tokens", "window", "min_history")),
    (FROM_TWO, "task.", ("max_length", "eval_max_length", "length_change.max_length")),
    (POSITIVE, "observe.probe.*.", ("threshold", "eps")),
    (POSITIVE, "", ("model.gain", "optim.lr", "schedule.lr")),
    (POSITIVE, "model.", ("rope.base", "rope.local_base", "score_cap", "logit_cap")),
    (Range("halves, interleaved", Literal["halves", "interleaved"]), "model.", ("rope.pairs",)),
    (NOT_NEGATIVE, "observe.sink.*.", ("connect_seconds", "finish_seconds")),
    (NOT_NEGATIVE, "norm.", ("eps", "penalty_mean", "penalty_var", "noise_shift", "d_max")),
    (NOT_NEGATIVE, "optim.", ("eps", "weight_decay", "groups.*.weight_decay", "groups.*.rate")),
    (NOT_NEGATIVE, "schedule.", ("initial", "minimum")),
    (NOT_NEGATIVE, "", ("model.initial_noise", "model.qk_eps", "task.*_search.length_factor")),
    (number(ge=1), "norm.", ("noise_scale", "r_max")),
    (SHARE, "norm.", ("warmup_share", "blend_share", "correction_share", "start")),
    (SHARE, "", ("placement.share", "optim.dampening")),
    (SHARE, "", ("schedule.final", "task.short_share")),
    (list_of("3 numbers", SHARE, 3), "task.", ("mask_split",)),
    (ABOVE_NONE, "", ("norm.momentum", "norm.backward_momentum", "norm.share", "task.mask_share")),
    (BELOW_ONE, "", ("optim.momentum", "optim.alpha", "task.label_smoothing")),
    (BELOW_ONE, "model.", ("dropout", "attention_dropout", "activation_dropout")),
    (list_of("2 numbers", BELOW_ONE, 2), "optim.", ("betas",)),
    (number(gt=0, lt=1), "task.corpus.", ("valid_share", "test_share")),
    (NUMBERS, "", ("observe.targets.*", "task.targets.*")),
    (PROJECT, "observe.sink.wandb.", ("project",)),
    (TAGS, "observe.sink.wandb.", ("tags",)),
    (Range("text", str), "observe.sink.wandb.", ("notes",)),
)


RANGES: Mapping[str, Range] = {
    f"{prefix}{name}": row for row, prefix, names in _TABLE for name in names
}


@lru_cache(maxsize=4096)
def range_of(key: str) -> Range | None:
    """Return the range of a dotted key; None if it has none."""
    first, _, rest = key.partition(".")
    if first == "sites" or first in NORM_KEYS:
        key = f"norm.{key.rpartition('.')[2] if first == 'sites' else rest}"
    patterns = (row for name, row in RANGES.items() if fnmatchcase(key, name))
    return RANGES.get(key) or next(patterns, None)


def takes_number(key: str) -> bool:
    """Return whether a dotted key has a range with numbers in it."""
    return (row := range_of(key)) is not None and any(
        _problem(row, number) is None for number in (0.5, 1, 2)
    )


def check(config: Mapping[str, Any]) -> None:
    """Raise UserError, with the key, for the first invalid value of a plain config."""
    # Top-level keys first: a task's copy of `batch_size` is not what the user typed.
    for key, value in sorted(_leaves(config, ""), key=lambda leaf: leaf[0].count(".")):
        if problem := _problem(range_of(key), value):
            plain = isinstance(value, str) and value.isprintable()
            raise UserError(f"{key}={value if plain else repr(value):.60} {problem}")
    for problem in _conflicts(config):
        raise UserError(problem)


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
        try:
            msgspec.convert(value, row.kind)
        except msgspec.ValidationError:
            return f"must be {row.allowed}"
        return None
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, str) and CONTROL.search(item):
            return "has characters that cannot be printed"
        if isinstance(item, float) and not math.isfinite(item):
            return "must be a finite number"
    return None


def _conflicts(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield a message for each conflict between values that are valid individually."""

    def get(key: str) -> Any:
        part, _, name = key.partition(".")
        return node.get(name) if isinstance(node := config.get(part), Mapping) else None

    if (name := get("observe.name")) is not None and not _NAME.fullmatch(str(name)):
        yield f"name={name!r:.60}: use letters, digits, '-', '_', '.'; do not start with '.' or '-'"
    if (budget := config.get("budget")) and all(limit is None for limit in budget.values()):
        yield "budget: set at least one of budget.steps, epochs, tokens, minutes"
    heads, dim = get("model.num_heads"), get("model.dim")
    if isinstance(heads, int) and isinstance(dim, int) and dim % heads:
        yield f"model.num_heads={heads} does not divide the width {dim}"
    yield from _misplaced(config.get("choices") or {})
    warmup, total = get("schedule.warmup"), get("schedule.total")
    if total is None and "total" in (schedule := config.get("schedule") or {}):
        at_known_step = f"schedule={schedule.get('option')} ends at a known step"
        yield f"{at_known_step}, but budget.steps is not set: give steps=N, or another schedule"
    if isinstance(warmup, int) and isinstance(total, int) and total <= warmup:
        yield f"schedule.total={total} must be above schedule.warmup={warmup}"
    if not isinstance(targets := get("observe.targets"), Mapping | None):
        yield f"observe.targets={targets!r:.60}: give 'observe.targets={{mlm_accuracy:[0.25,0.5]}}'"
    if (buckets := get("task.length_buckets")) and buckets != sorted(set(buckets)):
        yield f"task.length_buckets={buckets} must be ascending"
    if (average := get("validate.average")) and get("validate.test") == "best":
        yield f"validate.test=best and validate.average={average}: give one of them"


def _misplaced(choices: Mapping[str, Any]) -> Iterator[str]:
    """Yield a message for each norm of a run that does not fit its placement."""
    placement, run = choices.get("placement"), choices.get("norm")
    norms = {site: choices.get(site) or run for site in ("norm", *STACK_NORMS)}
    for site, norm in norms.items() if placement == "rezero" else ():
        if norm not in (None, "none"):
            key = site if site == "norm" else f"norm@{site}"
            yield f"placement=rezero has no norms, but {key}={norm} asks for one: give {key}=none"
    if placement in ("deepnorm", "admin", "b2t") and "none" in norms.values():
        grows = f"placement={placement} makes the residual stream grow in each layer"
        yield f"{grows}, but norm=none does not shrink it: give norm=ln, or placement=pre"
