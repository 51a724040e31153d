"""What a check of `normlab/inspect` finds, piece by piece, and the file that keeps it.

`results/computed.json` holds what the checks last found, so that the ledger can be shown without
computing. Figures in it are rounded to what all machines agree on.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from normlab.records.files import read_json

FORMAT = "normlab.computed/1"
_NOISE = 1e-9  # figures are in float64: what is smaller is rounding, which machines do differently


@dataclass(frozen=True)
class Evidence:
    """One piece: what was asked, what was found, and where that stands."""

    kind: Literal["unit"]
    question: str
    finding: str
    standing: Literal["supports", "contradicts"]
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])


def to_json(checks: Mapping[str, Sequence[Evidence]]) -> str:
    """Render what checks found, by their names, to the same bytes on every machine."""
    content = {
        "format": FORMAT,
        "checks": {
            name: [
                {
                    "question": piece.question,
                    "finding": piece.finding,
                    "standing": piece.standing,
                    "numbers": {key: _rounded(value) for key, value in piece.numbers.items()},
                }
                for piece in pieces
            ]
            for name, pieces in checks.items()
        },
    }
    return json.dumps(content, sort_keys=True, indent=1, allow_nan=False) + "\n"


def read_computed(path: Path) -> dict[str, list[Evidence]]:
    """Read what the checks found; nothing without a file, `ValueError` for a damaged one."""
    try:
        content = read_json(path)
        if content["format"] != FORMAT:
            raise ValueError(f"format is {content['format']!r}, this version reads {FORMAT!r}")
        return {
            name: [_piece(piece) for piece in pieces] for name, pieces in content["checks"].items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path}: damaged ({error!r}); normlab claims --write makes it again"
        ) from None


def _piece(content: Mapping[str, Any]) -> Evidence:
    return Evidence(
        "unit",
        content["question"],
        content["finding"],
        content["standing"],
        {key: float(value) for key, value in content["numbers"].items()},
    )


def _rounded(value: float) -> float:
    return 0.0 if abs(value) < _NOISE else float(f"{value:.4g}")
