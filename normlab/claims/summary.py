"""The ledger in plain words, `results/summary.md`: a line a claim, in English and in Chinese.

Chinese is the language of the documents. A claim's lines follow from its file and its verdict; for
what decides it a line links to the ledger.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from normlab.claims.claim import Claim, Part
from normlab.claims.ledger import VERDICTS, Entry
from normlab.records.text import in_markdown

TITLE = "What the documents claim, and what was found: a summary"
WRITTEN = "Written by `normlab claims --write`; do not edit. The evidence: [the ledger](claims.md)."


@dataclass(frozen=True)
class _Language:
    """How a language says verdicts and grades; `said` is a claim's or a part's own statement."""

    heading: str
    opening: str
    groups: Mapping[str, str]
    """The heading of the claims of a verdict."""
    parts: Mapping[str, str]
    """What opens the list of a claim's parts of a verdict."""
    grades: str
    comma: str
    said: Callable[[Claim | Part], str]


_ENGLISH = _Language(
    heading="In English",
    opening=(
        "The documents say why Transformers use layer norm (LN) and not batch norm (BN). Each "
        "claim was split into parts that can be true or false by themselves, and each part was "
        "held against runs of at least five random starts, or against a computation. A finding is "
        "about the data and the size that it was made with. The letter says how much it is worth: "
        "A, the document's own experiment; B, trained to the end on two data sets; C, a smaller "
        "experiment; D, computed or published."
    ),
    groups={
        "supported": "True",
        "contradicted": "Not true",
        "mixed": "Parts differ",
        "undecided": "Tested, and open",
        "not measured": "Not tested yet",
    },
    parts={
        "supported": "true",
        "contradicted": "not true",
        "no difference": "not true (no difference beyond the margin)",
        "undecided": "open",
        "not measured": "not tested yet",
    },
    grades="grade {}",
    comma="; ",
    said=lambda named: named.statement,
)
_CHINESE = _Language(
    heading="中文",
    opening=(
        "这些文档说明 Transformer 为什么用层归一化（LN）而不用批归一化（BN）。每条说法先拆成可以"
        "单独判断真假的部分，再用至少五个随机种子的训练或用计算来检验。结论只针对所用的数据和规模。"
        "字母表示证据的分量：A 为文档自己的实验；B 为在两个数据集上训练到收敛；C 为较小的实验；"
        "D 为计算结果或已发表的结果。"
    ),
    groups={
        "supported": "成立",
        "contradicted": "不成立",
        "mixed": "各部分结论不同",
        "undecided": "已检验，尚无定论",
        "not measured": "尚未检验",
    },
    parts={
        "supported": "成立",
        "contradicted": "不成立",
        "no difference": "不成立（差别未超出界限）",
        "undecided": "尚无定论",
        "not measured": "尚未检验",
    },
    grades="证据 {}",
    comma="；",
    said=lambda named: named.chinese or named.statement,
)


def page(entries: Sequence[Entry]) -> str:
    """Return the whole page."""
    sections = [_section(entries, language) for language in (_ENGLISH, _CHINESE)]
    return "\n".join([f"# {TITLE}\n", f"{WRITTEN}\n", *sections])


def _section(entries: Sequence[Entry], language: _Language) -> str:
    lines = [f"## {language.heading}", "", language.opening, ""]
    for verdict in VERDICTS:
        group = [entry for entry in entries if entry.verdict == verdict]
        if group:
            lines += [f"### {language.groups[verdict]} ({len(group)})", ""]
            lines += [f"- {_line(entry, language)}" for entry in group]
            lines.append("")
    return "\n".join(lines)


def _line(entry: Entry, language: _Language) -> str:
    number = entry.claim.id
    named = any(part.verdict == "no difference" for part in entry.parts)
    about = _parts(entry, language) if named or entry.verdict == "mixed" else []
    if entry.letters:
        about.append(language.grades.format(entry.letters))
    said = in_markdown(language.said(entry.claim))
    line = f"[{number}](claims.md#claim-{number}) {said}"
    return f"{line} ({language.comma.join(about)})" if about else line


def _parts(entry: Entry, language: _Language) -> list[str]:
    """Say which parts of a claim have which verdict, the decided ones first."""
    said: list[str] = []
    for verdict, opening in language.parts.items():
        found = [each.part for each in entry.parts if each.verdict == verdict]
        if found:
            texts = [in_markdown(language.said(part).rstrip(".。")) for part in found]
            said.append(f"*{opening}*: {language.comma.join(texts)}")
    return said
