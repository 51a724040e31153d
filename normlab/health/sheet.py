"""The health sheet of a model: every examination, and the file that keeps what they found."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from typing import Any

from normlab.health.subject import Finding, Subject
from normlab.records.canonical import plain

FORMAT = "normlab.inspect/1"
EXAMINATIONS = (
    "gradients",
    "statistics",
    "padding",
    "batch_mean",
    "batch_mates",
    "leak",
    "stepwise",
    "outlier",
    "order",
)
"""The examinations in the order of the sheet: each is a module of this package."""


def chosen(names: Sequence[str]) -> tuple[str, ...]:
    """Return the examinations of these names in the order of the sheet, all for no names.

    Raises ValueError for a name that is none.
    """
    for name in names:
        if name not in EXAMINATIONS:
            raise ValueError(f"no examination {name!r}: there are {', '.join(EXAMINATIONS)}")
    return tuple(name for name in EXAMINATIONS if name in names) if names else EXAMINATIONS


def examine(subject: Subject, names: Sequence[str]) -> Iterator[tuple[str, Finding]]:
    """Carry out examinations one after the other, and give each finding as it comes."""
    for name in names:
        yield name, import_module(f"normlab.health.{name}").examine(subject)


def sheet(subject: Subject, findings: Mapping[str, Finding]) -> dict[str, Any]:
    """Return what `inspect.json` holds, as plain values."""
    return plain(
        {
            "format": FORMAT,
            "subject": {
                "run": subject.run_id,
                "step": subject.step,
                "seed": subject.seed,
                "config": subject.config,
                "params": sum(parameter.numel() for parameter in subject.model.parameters()),
            },
            "environment": subject.runtime.environment(),
            "data": subject.task.describe(),
            "examinations": {
                name: {**asdict(finding), "applies": finding.why_not is None}
                for name, finding in findings.items()
            },
        }
    )
