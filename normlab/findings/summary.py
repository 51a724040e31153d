"""Verdicts, and the summary of findings by question, the most harmful first."""

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Protocol, TypeVar, get_args, runtime_checkable

Verdict = Literal["failed", "broken", "look", "fine", "does not apply"]

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
"""All verdicts, the most harmful first."""

FAILING: tuple[Verdict, ...] = ("failed", "broken")
"""Verdicts that make a test fail and a command exit with status 1."""

_COLOURS = {"failed": 31, "broken": 31, "look": 33, "fine": 32}  # ANSI codes: red, yellow, green
_INDENT = 16


@runtime_checkable
class Judged(Protocol):
    """What a summary needs of a finding: its answer, verdict, value, and why it does not apply."""

    @property
    def answer(self) -> str: ...
    @property
    def verdict(self) -> Verdict: ...
    @property
    def value(self) -> float | None: ...
    @property
    def why_not(self) -> str: ...


JudgedT = TypeVar("JudgedT", bound=Judged)


def by_harm(findings: Mapping[str, JudgedT]) -> dict[str, JudgedT]:
    """Sort findings, keyed by question, with the most harmful first."""

    def harm(item: tuple[str, Judged]) -> tuple[int, float]:
        finding = item[1]
        size = finding.value or 0.0 if finding.verdict in ("broken", "look") else 0.0
        return VERDICTS.index(finding.verdict), -size

    return dict(sorted(findings.items(), key=harm))


def counts(findings: Mapping[str, Any]) -> dict[Verdict, int]:
    """Return the number of findings with each verdict, leaving out verdicts that none has."""
    numbers = Counter(finding.verdict for finding in findings.values())
    return {verdict: numbers[verdict] for verdict in VERDICTS if numbers[verdict]}


def conclusion(findings: Mapping[str, JudgedT]) -> str:
    """Return a sentence that lists the questions that are broken or worth a look."""
    names: dict[Verdict, list[str]] = {}
    for name, finding in by_harm(findings).items():
        names.setdefault(finding.verdict, []).append(name)
    parts = [f"{v}: {', '.join(names[v])}" for v in FAILING if v in names] or ["nothing is broken"]
    look = ", ".join(names.get("look", []))
    return "; ".join([*parts, f"worth a look: {look}" if look else "nothing is worth a look"])


def summary(
    findings: Mapping[str, JudgedT], *, width: int, in_colour: bool = False
) -> Iterator[str]:
    """Yield lines of at most `width` columns with each finding's verdict, question and answer.

    Questions that do not apply for the same reason share a line.
    """
    names: dict[tuple[Verdict, str], list[str]] = {}
    for name, finding in by_harm(findings).items():
        names.setdefault((finding.verdict, finding.why_not or name), []).append(name)
    for (verdict, _), group in names.items():
        finding = findings[group[0]]
        lines = textwrap.wrap(
            f"{verdict:<{_INDENT}}{', '.join(group)}: {finding.why_not or finding.answer}".replace(
                " %",
                "\xa0%",  # keep a number and its unit on one line
            ),
            width,
            subsequent_indent=" " * _INDENT,
            break_long_words=False,
            break_on_hyphens=False,
        )
        lines = [line.replace("\xa0", " ") for line in lines]
        if in_colour and verdict in _COLOURS:
            lines[0] = f"\x1b[{_COLOURS[verdict]}m{verdict}\x1b[0m{lines[0][len(verdict) :]}"
        yield from lines
