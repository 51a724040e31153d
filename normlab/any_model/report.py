"""The report of `normlab.inspect`: findings about a model as text, JSON and HTML."""

import json
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from normlab.any_model.batches.axes import batch_first
from normlab.any_model.questions.examination import Examination
from normlab.any_model.questions.registry import questions
from normlab.any_model.questions.wording import listed
from normlab.any_model.tracing.found_norms import FoundNorm
from normlab.findings.finding import Finding
from normlab.findings.summary import FAILING, by_harm, counts, summary
from normlab.records.files import atomic_write
from normlab.records.labels import one_line
from normlab.records.record import plain

FORMAT = "normlab.module/2"


def title_of(examination: Examination) -> str:
    """Describe what was examined: the model's class, size and dtype, the rows and the outputs."""
    example, model = examination.example, examination.model
    size = sum(weight.numel() for weight in model.parameters())
    real, length = len(example.row_indices), example.length
    numbers = [str(example.row_indices[n]) for n in sorted(examination.rows) if n < real]
    rows = f"{'row' if len(numbers) == 1 else 'rows'} {listed(numbers)} of {example.total}"
    axis, first = next(iter(example.row_axes.values())), batch_first(model)
    if axis or first is not None:
        rows += f" on axis {axis}" + f" (batch_first={first})" * (axis == int(first is False))
    if added := example.size - real:
        rows += f" and {added} made up"
    rows += f", of up to {length:,} positions" * bool(length)
    outputs, more = [*examination.compared][:4], len(examination.compared) - 4
    outputs += [f"{more} more"] * (more > 0)
    shown = f"; compared: {rows}" + f"; outputs {listed(outputs)}" * bool(outputs)
    return f"{type(model).__name__}, {size:,} parameters in {examination.dtype}{shown}"


@dataclass(frozen=True)
class Report:
    """The findings about a model, keyed by question, under a title that says what was examined.

    `norms` are the model's norms. It is empty if no question searched for them.
    """

    title: str
    findings: Mapping[str, Finding]
    norms: Sequence[FoundNorm]

    def __str__(self) -> str:
        return self.text()

    def text(self, *, in_colour: bool = False) -> str:
        """Return the title and the summary, wrapped to the width of the terminal."""
        width = shutil.get_terminal_size().columns
        title = textwrap.wrap(self.title, width, break_long_words=False, break_on_hyphens=False)
        return "\n".join([*title, *summary(self.findings, width=width, in_colour=in_colour)])

    def by_harm(self) -> list[Finding]:
        """Return the findings, the most harmful first."""
        return [*by_harm(self.findings).values()]

    def to_json(self) -> str:
        """Return the report as JSON."""
        entries = [
            {
                "name": finding.name,
                "verdict": finding.verdict,
                "value": finding.value,
                "threshold": finding.threshold,
                "module": finding.module,
                "sentence": finding.answer,
                "values": finding.values,
            }
            for finding in self.by_harm()
        ]
        content = plain({"format": FORMAT, "title": self.title, "findings": entries})
        return json.dumps(content, indent=1, sort_keys=True) + "\n"

    def to_html(self, path: str | Path) -> None:
        """Write the report as a self-contained HTML page.

        Raises OSError if `path` cannot be written.
        """
        from jinja2 import Environment, StrictUndefined

        texts = {question.name: question.text for question in questions(slow=True)}
        texts["restore"] = "Is the model unchanged after the examination?"
        template = (files("normlab.any_model") / "report.html").read_text("utf-8")
        jinja = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
        jinja.finalize = lambda value: one_line(value) if type(value) is str else value
        with atomic_write(path) as opened:
            opened.write(
                jinja.from_string(template).render(
                    title=self.title,
                    findings=[(finding, texts[finding.name]) for finding in self.by_harm()],
                    verdicts=[*counts(self.findings).items()],
                )
            )

    def raise_if_broken(self) -> None:
        """Raise AssertionError if a finding is broken or failed. This is for use in tests."""
        broken = [
            f"{finding.name}: {finding}" for finding in self.by_harm() if finding.verdict in FAILING
        ]
        if broken:
            raise AssertionError("; ".join(broken))
