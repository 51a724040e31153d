"""Faults and their correct versions, examined by normlab and two other tools.

    python -m venv peers && peers/bin/pip install --no-deps pytest-torch==1.1.1 torchtest2==0.1.0
    echo $PWD/.venv/lib/python3.11/site-packages > peers/lib/python3.11/site-packages/normlab.pth
    peers/bin/python scripts/peers.py

Writes pairs.md and pairs.json in results/survey, with three sets of faults: faults that we planted,
faults from further public reports, and the kinds of faults that pytest-torch checks for. Each tool
runs with its default settings. In the first two sets, only findings about batches, padding and
masks count; pytest-torch's checks of padding and masks work on `input_ids`, so other inputs get
only its inference contract. In the third set, pytest-torch runs its check for the fault, and the
other tools run all their default checks.
"""

import json
import sys
from collections.abc import Mapping
from functools import partial
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

from peer_faults import OWN, own_case  # noqa: E402

import normlab  # noqa: E402
from normlab.records.files import atomic_write  # noqa: E402
from tests.any_model.pairs import PAIRS, Case, case  # noqa: E402
from tests.any_model.test_bugs_of_cited_issues import BUGS  # noqa: E402

RELEVANT = ("batch_independence", "input_dependency", "eval_determinism")


class Called(nn.Module):
    """A model with the forward call of its case."""

    def __init__(self, model: nn.Module, forward: Any):
        super().__init__()
        self.model, self.call = model, forward

    def forward(self, **batch: Any) -> Any:
        return self.call(self.model, batch)


def by_normlab(subject: Case) -> tuple[bool, str]:
    """Return whether normlab reports a fault in a case, and the modules it names."""
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
    """Return whether a check fails; a check that the model cannot run does not count as failed."""
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
    """Return a model and a batch for a tool that has no argument `forward`."""
    call = subject.arguments.get("forward")
    model = Called(subject.model, call).eval() if call else subject.model
    return model, subject.batches[0]


TOOLS = {
    "normlab": by_normlab,
    f"pytest-torch {version('pytest-torch')}": by_pytest_torch,
    f"torchtest2 {version('torchtest2')}": by_torchtest2,
}


def plain_case(name: str, faulty: bool) -> dict[str, tuple[bool, str]]:
    """Return each tool's verdict on a fault of a kind that pytest-torch checks for."""
    found: dict[str, tuple[bool, str]] = {}
    for tool in TOOLS:
        make, batch = own_case(name, faulty)
        if tool == "normlab":
            found[tool] = by_normlab(Case(make(), [batch]))
        elif tool.startswith("pytest"):
            found[tool] = (fails(lambda m=make, b=batch: OWN[name].check(m, b)), "")
        else:
            results = torchtest2.check_model(make(), batch).results
            found[tool] = (any(each.status.name == "FAIL" for each in results), "")
    return found


def asked(build: Any) -> Any:
    """Return a function that maps `faulty` to each tool's verdict on a case."""
    return lambda faulty: {tool: ask(build(faulty)) for tool, ask in TOOLS.items()}


def reported(build: Any) -> Any:
    """Return a function that maps `faulty` to a public report's case, built from a fixed seed."""

    def case_of(faulty: bool) -> Case:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            found = build(faulty)
        return found._replace(model=found.model.eval())

    return case_of


SETS = {
    "planted": ("Faults that we planted", {n: asked(partial(case, n)) for n in PAIRS}),
    "reported": (
        "Further public reports, rebuilt",
        {n.__doc__.partition(":")[0]: asked(reported(n)) for n in BUGS},
    ),
    "own": (
        "Faults of the kinds that pytest-torch has a check for",
        {n: partial(plain_case, n) for n in OWN},
    ),
}


def rows_of(faults: Mapping[str, Any]) -> tuple[list[str], dict[str, dict[str, int]]]:
    """Return the lines of a table of faults, and each tool's counts."""
    lines = [
        f"| fault | {' | '.join(TOOLS)} | modules that normlab named |",
        f"| --- |{' --- |' * (len(TOOLS) + 1)}",
    ]
    counts = {tool.split()[0]: {"caught": 0, "false_alarms": 0} for tool in TOOLS}
    for name, ask in faults.items():
        wrong, right = ask(True), ask(False)
        cells = []
        for tool in TOOLS:
            mine = counts[tool.split()[0]]
            mine["caught"] += wrong[tool][0]
            mine["false_alarms"] += right[tool][0]
            word = "caught" if wrong[tool][0] else "missed"
            cells.append(word + ", flags the correct version" * right[tool][0])
        lines.append(f"| {name} | {' | '.join(cells)} | {wrong['normlab'][1]} |")
    total = [f"{c['caught']} of {len(faults)}, {c['false_alarms']} false" for c in counts.values()]
    lines.append(f"| caught, false alarms | {' | '.join(total)} | |")
    return lines, counts


def main() -> None:
    """Run all tools on all faults and write the tables."""
    lines = [
        "# Faults and their correct versions, and which tools tell them apart",
        "",
        f"Made by `scripts/peers.py` with torch {torch.__version__.partition('+')[0]} and "
        f"transformers {transformers.__version__}, on a CPU, with each tool's default "
        "settings. Each cell says whether the tool caught the fault, and whether it also "
        "flagged the correct version. We wrote the first two sets, and could test normlab on "
        "them while doing so; the third is what pytest-torch's documentation promises to catch.",
    ]
    counts: dict[str, Any] = {"versions": {t.split()[0]: t.partition(" ")[2] for t in TOOLS}}
    for key, (title, faults) in SETS.items():
        table, counts[key] = rows_of(faults)
        lines += ["", f"## {title}", "", *table]
        counts[key]["faults"] = len(faults)
    folder = ROOT / "results" / "survey"
    with atomic_write(folder / "pairs.md") as file:
        file.write("\n".join(lines) + "\n")
    with atomic_write(folder / "pairs.json") as file:
        file.write(json.dumps(counts, indent=1) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
