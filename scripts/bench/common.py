"""Shared by all benchmarks: options, default runs on synthetic data, and a line on the machine."""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.corpus import SyntheticCorpus, SyntheticImages
from normlab.commands._arguments import add_notes
from normlab.config.compose import compose
from normlab.config.run_config import to_dict
from normlab.errors import UserError
from normlab.records.files import atomic_write
from normlab.tasks.base import Task
from normlab.tasks.images import ImageClassification
from normlab.tasks.translation import Translation
from normlab.training.build import build_task
from normlab.training.runtime import Runtime

TRANSLATION = (
    "model=small",
    "max_tokens=2048",
    "model.dropout=0.3",
    "task=translation",
    "data_dir=-",
)
"""What is measured by default: model B of `peers`, on synthetic text."""
_TEXT = ("model=bert_mini", "batch_size=32")
_BY_TASK: dict[str | None, tuple[str, ...]] = {
    "mlm": (*_TEXT, "task.short_share=0"),
    "lm": _TEXT,
    "cifar10": (),
    "digits": (),
}


def bench_parser(subject: str, about: str, examples: str) -> argparse.ArgumentParser:
    """Return a parser with the options of every benchmark."""
    parser = argparse.ArgumentParser(
        prog=f"python scripts/bench {subject}",
        description=about,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as for `normlab train`")
    add_notes(parser)
    parser.add_argument("--threads", type=int, default=1, help="default: 1")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all values to a file")
    return parser


def require_positive(arguments: argparse.Namespace, *names: str) -> None:
    """Raise UserError for the first option below 1, by name."""
    for name in names:
        if getattr(arguments, name) < 1:
            raise UserError(f"--{name}={getattr(arguments, name)} must be at least 1")


def bench_config(overrides: Sequence[str]) -> dict[str, Any]:
    """Return the plain config of a measured run: `TRANSLATION`, or the task in the overrides."""
    chosen = next((o.removeprefix("task=") for o in overrides if o.startswith("task=")), None)
    config = to_dict(compose([*_BY_TASK.get(chosen, TRANSLATION), *overrides]))
    if chosen is None:
        config["choices"]["task"] = "synthetic"
    if chosen == "cifar10" and config["data_dir"] is None:
        config["choices"]["task"] = "noise"
    return config


def bench_task(config: Mapping[str, Any], *, pairs: int | None = None) -> Task:
    """Return the task of a `bench_config`, with its synthetic text or images."""
    task = build_task(config)
    if config["choices"]["task"] == "synthetic":
        assert isinstance(task, Translation)
        task.corpus = SyntheticCorpus() if pairs is None else SyntheticCorpus(pairs=pairs)
    if config["choices"]["task"] == "noise":
        assert isinstance(task, ImageClassification)
        task.source = SyntheticImages()
    return task


def start_runtime(config: Mapping[str, Any], threads: int) -> Runtime:
    """Resolve device, precision and threads as a run of this config would."""
    return Runtime.start(device=config["device"], precision=config["precision"], threads=threads)


def machine(environment: Mapping[str, Any]) -> str:
    """Return one line on the machine and the versions."""
    versions = ", ".join(f"{k} {environment['versions'][k]}" for k in ("python", "torch"))
    return (
        f"{environment['device']}, {environment['threads']} thread(s), "
        f"{environment['precision']}, {versions}"
    )


def spread_cells(wall: Mapping[str, float], busy: Mapping[str, float], form: str) -> list[str]:
    """Return three cells: the median by wall time, its range, the median by busy time."""
    median, low, high = (format(wall[key], form) for key in ("median", "min", "max"))
    return [median, f"{low}-{high}", format(busy["median"], form)]


def write_json(report: Mapping[str, Any], path: Path | None) -> None:
    """Write a report if a path is given."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            file.write(json.dumps(report, indent=1, sort_keys=True) + "\n")
