"""Readable names of settings, their values, and points of a grid: `batch size 8, pre`."""

import re
from collections.abc import Mapping

from normlab.records.point import point_values

NUMBER = re.compile(r"-?[\d.]+(e-?\d+)?")
_SETTINGS = {
    "batch_size": "batch size",
    "max_tokens": "tokens per batch",
    "optim.lr": "learning rate",
    "model.depth": "depth",
    "model.dim": "width",
    "model.dropout": "dropout",
    "schedule.warmup": "warm-up steps",
    "budget.steps": "steps",
    "budget.tokens": "tokens",
    "budget.epochs": "epochs",
    "task.label_smoothing": "label smoothing",
    "norm.padding": "padding",
    "norm.eval_stats": "statistics at evaluation",
    "norm.ghost": "ghost batch",
    "norm.noise_scale": "noise scale",
    "norm.affine": "gain",
    "norm.detach": "detached statistics",
    "model.gain": "initial gain",
    "model.input_statistics": "input statistics",
    "task.eval_max_length": "test length",
}


def setting(key: str) -> str:
    """Return the name of a config key: `batch size`, `learning rate`, or the key itself."""
    return _SETTINGS.get(key, key)


def setting_with_values(key: str, numbers: str) -> str:
    """Return numbers with the name of their setting: `batch size 8 to 32`, `60 and 300 steps`."""
    words = _COUNTED.get(key)
    if words is None:
        return f"{setting(key)} {numbers}"
    return f"{numbers} {words.removesuffix('s') if numbers == '1' else words}"


def point_name(point: str, names: Mapping[str, str] = {}) -> str:
    """Return a point of a grid, such as `batch_size=8 placement=pre`, in words.

    `names` are the user's names of keys.
    """
    phrases = (
        f"{names[key]} {text}"
        if key in names
        else phrase(key, float(text) if NUMBER.fullmatch(text) else text)
        for key, text in point_values(point).items()
    )
    return ", ".join(phrases) or point


_COUNTED = {
    "budget.steps": "steps",
    "budget.tokens": "tokens",
    "budget.epochs": "epochs",
    "schedule.warmup": "warm-up steps",
    "max_tokens": "tokens per batch",
}
"""Settings that are named after their number: 3,000 steps."""
_PLAIN = ("precision",)
"""Settings that need no name, because the value is clear by itself: bf16."""
_VALUES = {
    ("norm.padding", "exclude"): "padding excluded",
    ("norm.padding", "fill"): "padding filled",
    ("norm.padding", "include"): "padding included",
    ("norm.eval_stats", "running"): "running statistics",
    ("norm.eval_stats", "batch"): "batch statistics",
    ("norm.eval_stats", "recalibrated"): "recalibrated statistics",
    ("norm.detach", "mean"): "mean detached",
    ("norm.detach", "std"): "std detached",
    ("norm.detach", "value"): "value detached",
    ("norm.detach", "none"): "nothing detached",
    ("norm.detach", "both"): "both detached",
    ("norm.affine", "True"): "with gain",
    ("norm.affine", "False"): "without gain",
    ("norm.ghost", "None"): "no ghost batches",
    ("model.input_statistics", "step"): "input statistics by step",
    ("model.input_statistics", "sequence"): "input statistics by sequence",
}
"""Values of settings that are not numbers, in words."""


def phrase(key: str, value: object) -> str:
    """Return a setting and its value in words.

    `3,000 steps`, `batch size 32`, `learning rate 0.001`, `bf16`, `padding excluded`, and for an
    option of a config group `model small`. Other keys are shown as in a command.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    text = f"{value:,.12g}" if number else str(value)
    if key in _COUNTED and number:
        words = _COUNTED[key]
        return f"{text} {words.removesuffix('s') if value == 1 else words}"
    if (key, text) in _VALUES:
        return _VALUES[key, text]
    if key in _PLAIN:
        return text
    if key in _SETTINGS or "." not in key:
        return f"{setting(key).replace('_', ' ')} {text}"
    typed = "null" if value is None else str(value).lower() if isinstance(value, bool) else text
    return f"{key}={typed.replace(',', '') if number else typed}"
