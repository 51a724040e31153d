"""The report of `normlab.inspect(model, batches)`: findings as text, JSON and HTML."""

import json
import shutil
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from normlab.inspect.question import Finding, questions
from normlab.records.files import atomic_write
from normlab.records.record import plain
from normlab.reports.page import page

FORMAT = "normlab.module/1"
_ORDER = ("broken", "look", "fine", "does not apply")


@dataclass(frozen=True)
class Report:
    """Findings about a module, keyed by question; `title` says what was examined.

    `norms` has the model's norms (`FoundNorm`), or is empty if no question needed them.
    """

    title: str
    findings: Mapping[str, Finding]
    norms: Sequence[Any]

    def __str__(self) -> str:
        width = shutil.get_terminal_size().columns
        lines = [self.title]
        for each in self.by_harm():
            first = f"{each.verdict:<16}"
            text = each.answer.removeprefix("does not apply: ")
            lines += textwrap.wrap(
                f"{first}{each.name}: {text}",
                width,
                subsequent_indent=" " * 16,
                break_long_words=False,
                break_on_hyphens=False,
            )
        return "\n".join(lines)

    def by_harm(self) -> list[Finding]:
        """Return the findings, the most harmful first."""
        return sorted(
            self.findings.values(),
            key=lambda each: (_ORDER.index(each.verdict or "fine"), -(each.value or 0)),
        )

    def to_json(self) -> str:
        """Return the report as JSON."""
        entries = [
            {
                "name": each.name,
                "verdict": each.verdict,
                "value": each.value,
                "threshold": each.threshold,
                "module": each.module,
                "sentence": each.answer,
                "values": each.values,
            }
            for each in self.by_harm()
        ]
        content = plain({"format": FORMAT, "title": self.title, "findings": entries})
        return json.dumps(content, indent=1, sort_keys=True) + "\n"

    def to_html(self, path: str | Path) -> None:
        """Write the report as a self-contained HTML page; OSError if `path` cannot be written."""
        texts = {each.name: each.text for each in questions("module", "module_all")}
        found = [(each, texts[each.name]) for each in self.by_harm()]
        counts = Counter(each.verdict for each in self.findings.values())
        verdicts = [(name, [str(counts[name])]) for name in _ORDER if counts[name]]
        with atomic_write(path) as opened:
            opened.write(page("module.html", title=self.title, findings=found, verdicts=verdicts))

    def raise_if_broken(self) -> None:
        """Raise AssertionError with the broken findings, for use in a test."""
        broken = [f"{each.name}: {each}" for each in self.by_harm() if each.verdict == "broken"]
        if broken:
            raise AssertionError("; ".join(broken))
