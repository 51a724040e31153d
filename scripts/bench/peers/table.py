"""Rates and ratios of all turns, and the page that shows them."""

from collections.abc import Mapping, Sequence
from typing import Any

from bench.peers.race import OWN, Entry, Kind, Turn
from normlab.training.speed import spread

UNITS: Mapping[Kind, str] = {"training": "target_tokens", "decoding": "sentences"}
_NAMES: Mapping[Kind, str] = {"training": "target tokens", "decoding": "sentences"}


def figures(
    measured: Sequence[tuple[Entry, Mapping[str, Any], Sequence[Turn]]],
) -> list[dict[str, Any]]:
    """Return one row per program: its facts, its rates, and its ratios to others in each round.

    The others are the first program and normlab's own entries.
    """
    rows = [_row(*item) for item in measured]
    for row in rows:
        row["ratio_to"] = {
            other["name"]: spread(
                [a / b for a, b in zip(row["busy_rates"], other["busy_rates"], strict=True)]
            )
            for place, other in enumerate(rows)
            if place == 0 or other["name"] in OWN
        }
    return rows


def _row(entry: Entry, facts: Mapping[str, Any], turns: Sequence[Turn]) -> dict[str, Any]:
    done = [turn.counts[UNITS[entry.kind]] for turn in turns]
    busy = [count / turn.busy for count, turn in zip(done, turns, strict=True)]
    wall = [count / turn.wall for count, turn in zip(done, turns, strict=True)]
    return {
        "name": entry.name,
        **facts,
        "per_busy_second": spread(busy),
        "per_second": spread(wall),
        "busy_rates": busy,
        "steps": sum(turn.steps for turn in turns),
        "peak_memory_bytes": max(turn.peak_memory_bytes for turn in turns),
    }


def page(report: Mapping[str, Any]) -> str:
    """Return a report as Markdown."""
    work, machine = report["work"], report["environment"]
    lines = [
        f"# Speed of normlab and other toolkits, model {work['model'].upper()}",
        "",
        f"{work['encoder_layers']}+{work['decoder_layers']} layers of width {work['dim']}, "
        f"feed-forward {work['ffn_dim']}, {work['num_heads']} heads, dropout {work['dropout']}, "
        f"label smoothing {work['label_smoothing']}, one embedding matrix; a synthetic corpus of "
        f"one vocabulary of 8,000 words.",
        "",
        f"{machine['device']}, one thread each, Python {machine['versions']['python']}, torch "
        f"{machine['versions']['torch']}, {report['date']}. The programs take turns of "
        f"{report['seconds']:g} s of processor time, {report['rounds']} rounds; start-up and a "
        "first turn are not counted.",
        "",
        "The machine is shared with other work, so rates and ratios are by **processor time**, "
        "which leaves out what other programs took. A value is the median of the rounds (lowest to "
        "highest); a ratio is the median of the ratios per round, above 1 where the row is faster.",
        "",
        "Written by `bash scripts/bench/peers.sh`, which installs everything first.",
    ]
    for kind in ("training", "decoding"):
        if report[kind]:
            lines += ["", *_section(kind, report[kind], work)]
    if report["missing"]:
        lines += ["", "## Not measured", ""]
        lines += [f"- {item['name']}: {item['reason']}" for item in report["missing"]]
    return "\n".join(lines) + "\n"


def _section(kind: Kind, rows: Sequence[Mapping[str, Any]], work: Mapping[str, Any]) -> list[str]:
    references = list(rows[0]["ratio_to"])
    unit = _NAMES[kind]
    columns = [
        "program",
        f"{unit} per processor second",
        f"{unit} per second",
        *(f"to {name}" for name in references),
        "memory",
    ]
    lines = [
        f"## {kind.capitalize()}",
        "",
        _WHAT[kind].format(**work),
        "",
        "| " + " | ".join(columns) + " |",
        "| --- |" + " ---: |" * (len(columns) - 1),
    ]
    lines += [_line(kind, row, references) for row in rows]
    lines += ["", "How the programs differ:", ""]
    for name, row in _by_program(rows).items():
        versions = ", ".join(f"{package} {number}" for package, number in row["versions"].items())
        lines.append("; ".join([f"- {name} ({versions})", *row["differs"]]))
    return lines


_WHAT: Mapping[Kind, str] = {
    "training": (
        "Target tokens in the loss: padding never, one end mark per sentence, no begin mark. "
        "Batches of about {max_tokens:,} tokens and of similar length; loading them is part of the "
        "time."
    ),
    "decoding": (
        "Beam {beam}, batches of {sentences} sentences of similar length, random weights, every "
        "hypothesis exactly {length} steps."
    ),
}


def _line(kind: Kind, row: Mapping[str, Any], references: Sequence[str]) -> str:
    cells = [
        row["name"],
        _range(row["per_busy_second"]),
        _number(row["per_second"]["median"]),
        *(f"{row['ratio_to'][name]['median']:.2f}" for name in references),
        f"{row['peak_memory_bytes'] / 2**30:.1f} GiB",
    ]
    return "| " + " | ".join(cells) + " |"


def _range(values: Mapping[str, float]) -> str:
    low, high = _number(values["min"]), _number(values["max"])
    return f"{_number(values['median'])} ({low}-{high})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}"


def _by_program(rows: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return one row per program, since its description holds for every precision."""
    return {row["name"].rpartition(" ")[0]: row for row in rows}
