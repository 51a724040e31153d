"""Checks of a run's values: each within the range of its key, and no two in conflict.

An impossible value is refused when a run is composed, before it costs anything, and without torch:
annotations of an option's own parameters, such as `Annotated[int, Meta(gt=0)]`, are checked later,
when its class is imported. Nothing here imports torch.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from normlab.config.registry import OPTION, option_of
from normlab.config.schema import STACK_NORMS, key_of
from normlab.config.value_range import TEXT, Range
from normlab.errors import SettingError
from normlab.formats import CONTROL


def check_values(config: Mapping[str, Any]) -> None:
    """Raise SettingError, with the key, for the first invalid value of a plain config."""
    # Top-level keys first: a task's copy of `batch_size` is not what the user typed.
    for key, value in sorted(_leaves(config, ""), key=lambda leaf: leaf[0].count(".")):
        if problem := _problem(key_of(key).range, value):
            plain = isinstance(value, str) and value.isprintable()
            raise SettingError(f"{key}={value if plain else repr(value):.60} {problem}", key)
    for rule in _CONFLICTS:
        for conflict in rule(config):
            raise conflict


def _leaves(node: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield dotted keys and values, except `choices`; a list is one value.

    A mapping where a number is expected is yielded as a value, unless it is an option's node.
    """
    for name, value in node.items():
        key = f"{prefix}{name}"
        limits = key_of(key).range
        is_node = limits is None or limits.has(value)
        if isinstance(value, Mapping) and (is_node or OPTION in value):
            yield from _leaves(value, f"{key}.") if key != "choices" else ()
        else:
            yield key, value


def _problem(limits: Range | None, value: object) -> str | None:
    if limits is not None and value is not None and not limits.has(value):
        return f"must be {limits.allowed}"
    if limits not in (None, TEXT):
        return None
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, str) and CONTROL.search(item):
            return "has characters that cannot be printed"
        if isinstance(item, float) and not math.isfinite(item):
            return "must be a finite number"
    return None


# Conflicts between values that are valid individually --------------------------------------------


def _get(config: Mapping[str, Any], key: str) -> Any:
    """Return the value of a key such as `model.dim`; None if there is no such node or key."""
    part, _, name = key.partition(".")
    return node.get(name) if isinstance(node := config.get(part), Mapping) else None


def _budget_without_limit(config: Mapping[str, Any]) -> Iterator[SettingError]:
    if (budget := config.get("budget")) and all(limit is None for limit in budget.values()):
        problem = "budget: set at least one of budget.steps, epochs, tokens, minutes"
        yield SettingError(problem, *(f"budget.{name}" for name in budget))


def _width_not_divisible(config: Mapping[str, Any]) -> Iterator[SettingError]:
    heads, dim = _get(config, "model.num_heads"), _get(config, "model.dim")
    if isinstance(heads, int) and isinstance(dim, int) and dim % heads:
        problem = f"model.num_heads={heads} does not divide the width {dim}"
        yield SettingError(problem, "model.num_heads", "model.dim")


def _norms_misplaced(config: Mapping[str, Any]) -> Iterator[SettingError]:
    """Yield an error for each norm of a run that does not fit its placement (`_norms_`)."""
    choices = config.get("choices") or {}
    placement, run = choices.get("placement"), choices.get("norm")
    option = option_of("placement", str(placement))
    norms = {site: choices.get(site) or run for site in ("norm", *STACK_NORMS)}
    match option.norms if option else "any":
        case "none":
            for site, norm in norms.items():
                if norm not in (None, "none"):
                    key = site if site == "norm" else f"norm@{site}"
                    has_none = f"placement={placement} has no norms, but {key}={norm} asks for one"
                    yield SettingError(f"{has_none}: give {key}=none", "placement", key)
        case "required" if "none" in norms.values():
            grows = f"placement={placement} makes the residual stream grow in each layer"
            problem = "but norm=none does not shrink it: give norm=ln, or placement=pre"
            yield SettingError(f"{grows}, {problem}", "placement", "norm")


def _schedule_without_end(config: Mapping[str, Any]) -> Iterator[SettingError]:
    schedule = config.get("schedule") or {}
    if "total" in schedule and _get(config, "schedule.total") is None:
        at_known_step = f"schedule={schedule.get('option')} ends at a known step"
        problem = "but budget.steps is not set: give steps=N, or another schedule"
        keys = ("schedule", "budget.steps", "budget.epochs")
        yield SettingError(f"{at_known_step}, {problem}", *keys)


def _warmup_beyond_end(config: Mapping[str, Any]) -> Iterator[SettingError]:
    warmup, total = _get(config, "schedule.warmup"), _get(config, "schedule.total")
    if isinstance(warmup, int) and isinstance(total, int) and total <= warmup:
        problem = f"schedule.total={total} must be above schedule.warmup={warmup}"
        yield SettingError(problem, "schedule.total", "schedule.warmup", "budget.steps")


def _targets_without_scores(config: Mapping[str, Any]) -> Iterator[SettingError]:
    if not isinstance(targets := _get(config, "observe.targets"), Mapping | None):
        example = "'observe.targets={mlm_accuracy:[0.25,0.5]}'"
        yield SettingError(f"observe.targets={targets!r:.60}: give {example}", "observe.targets")


def _buckets_not_ascending(config: Mapping[str, Any]) -> Iterator[SettingError]:
    buckets = _get(config, "task.length_buckets")
    if buckets and buckets != sorted(set(buckets)):
        problem = f"task.length_buckets={buckets} must be ascending"
        yield SettingError(problem, "task.length_buckets")


def _best_and_average(config: Mapping[str, Any]) -> Iterator[SettingError]:
    average = _get(config, "validate.average")
    if average and _get(config, "validate.test") == "best":
        problem = f"validate.test=best and validate.average={average}: give one of them"
        yield SettingError(problem, "validate.test", "validate.average")


_CONFLICTS = (
    _budget_without_limit,
    _width_not_divisible,
    _norms_misplaced,
    _schedule_without_end,
    _warmup_beyond_end,
    _targets_without_scores,
    _buckets_not_ascending,
    _best_and_average,
)
"""The rules, in the order in which they are checked: each yields an error for each conflict."""
