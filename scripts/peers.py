"""Planted faults and their correct versions, examined by normlab and two other tools.

    python -m venv peers && peers/bin/pip install --no-deps pytest-torch==1.1.0 torchtest2==0.1.0
    echo $PWD/.venv/lib/python3.11/site-packages > peers/lib/python3.11/site-packages/normlab.pth
    peers/bin/python scripts/peers.py

Writes pairs.md and pairs.json in results/survey. Each tool runs with its default
settings and decides by what it says about batches, padding and masks; its other checks are left
out. pytest-torch's checks of padding and masks are for `input_ids`, so other inputs get its
inference contract alone.
"""

import json
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest_torch
import torch
import torchtest2
import transformers
from torch import nn

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import normlab  # noqa: E402
from normlab.records.files import atomic_write  # noqa: E402
from tests.any_model.pairs import PAIRS, Case, case  # noqa: E402

RELEVANT = ("batch_independence", "input_dependency", "eval_determinism")


class Called(nn.Module):
    """A model that is called as its case says."""

    def __init__(self, model: nn.Module, forward: Any):
        super().__init__()
        self.model, self.call = model, forward

    def forward(self, **batch: Any) -> Any:
        return self.call(self.model, batch)


def by_normlab(subject: Case) -> tuple[bool, str]:
    """Return whether a case is accused, and which modules are named."""
    report = normlab.inspect(subject.model, subject.batches, **subject.arguments)
    found = [each for each in report.by_harm() if each.verdict in ("look", "broken")]
    return bool(found), ", ".join({each.module: None for each in found if each.module})


def by_pytest_torch(subject: Case) -> tuple[bool, str]:
    """Return whether a case is accused; the tool names no module."""
    model, batch = plain(subject)
    checks = [lambda: pytest_torch.check_inference_contract(model, batch)]
    if isinstance(batch, Mapping) and "input_ids" in batch:
        side = "right" if batch["attention_mask"][-1, 0] else "left"
        checks.append(lambda: pytest_torch.assert_padding_invariant(model, batch, side=side))
        checks.append(lambda: pytest_torch.assert_mask_invariant(model, batch))
    return any(map(fails, checks)), ""


def fails(check: Any) -> bool:
    """Return whether a check fails; one that the model cannot run does not."""
    try:
        check()
    except AssertionError:
        return True
    except (RuntimeError, ValueError):
        return False
    return False


def by_torchtest2(subject: Case) -> tuple[bool, str]:
    """Return whether a case is accused; the tool names no module."""
    found = torchtest2.check_model(*plain(subject)).results
    return any(r.name in RELEVANT and r.status.name in ("FAIL", "WARN") for r in found), ""


def plain(subject: Case) -> tuple[nn.Module, Any]:
    """Return a model and a batch as a tool without `forward` takes them."""
    call = subject.arguments.get("forward")
    model = Called(subject.model, call).eval() if call else subject.model
    return model, subject.batches[0]


TOOLS = {
    "normlab": by_normlab,
    f"pytest-torch {version('pytest-torch')}": by_pytest_torch,
    f"torchtest2 {version('torchtest2')}": by_torchtest2,
}


def main() -> None:
    """Ask all tools about all pairs and write the table."""
    lines = [
        "# Planted faults and their correct versions",
        "",
        f"Made by `scripts/peers.py` with torch {torch.__version__.partition('+')[0]} and "
        f"transformers {transformers.__version__}, on a CPU, with each tool's default "
        "settings. Each cell says whether the tool caught the fault, and whether it also "
        "flagged the correct version.",
        "",
        f"| fault | {' | '.join(TOOLS)} | modules that normlab named |",
        f"| --- |{' --- |' * (len(TOOLS) + 1)}",
    ]
    caught, alarms = dict.fromkeys(TOOLS, 0), dict.fromkeys(TOOLS, 0)
    for name in PAIRS:
        cells, named = [], ""
        for tool, ask in TOOLS.items():
            fault, modules = ask(case(name, True))
            twin, _ = ask(case(name, False))
            caught[tool] += fault
            alarms[tool] += twin
            cells.append(("caught" if fault else "missed") + ", flags the correct version" * twin)
            named = named or modules
        lines.append(f"| {name} | {' | '.join(cells)} | {named} |")
    total = [f"{caught[tool]} of {len(PAIRS)}, {alarms[tool]} false" for tool in TOOLS]
    lines.append(f"| caught, false alarms | {' | '.join(total)} | |")
    counts = {
        tool.split()[0]: {"caught": caught[tool], "false_alarms": alarms[tool]} for tool in TOOLS
    }
    folder = ROOT / "results" / "survey"
    with atomic_write(folder / "pairs.md") as file:
        file.write("\n".join(lines) + "\n")
    with atomic_write(folder / "pairs.json") as file:
        file.write(json.dumps(counts, indent=1) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
