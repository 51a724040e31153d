"""The ledger in plain words, `results/summary.md`: one line per claim, in English and in Chinese.

Chinese is the language of the documents.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from normlab.claims.claim import Claim, Part
from normlab.claims.judge import DECIDED
from normlab.claims.ledger import VERDICTS, Entry, Outcome
from normlab.records.labels import in_markdown

TITLE = "What the documents claim, and what was found: a summary"
WRITTEN = "Written by `normlab claims --write`; do not edit. The evidence: [the ledger](claims.md)."


@dataclass(frozen=True)
class _Language:
    """The words of a language; `said` returns the statement of a claim or part."""

    heading: str
    opening: str
    groups: Mapping[str, str]  # headings, by verdict
    parts: Mapping[str, str]  # what begins the line of a part, by verdict
    part: str  # the line of a part
    said: Callable[[Claim | Part], str]


_ENGLISH = _Language(
    heading="In English",
    opening="""\
The documents say why Transformers use layer norm (LN) and not batch norm (BN). Each claim is split
into parts that can be true or false by themselves. A part is tested by training runs, at least
five that differ in their random start, or by a computation, timings on one machine, or published
sources.

- *true* and *not true* hold for the data and the model size in brackets; larger ones may differ.
- *not true, too small a difference*: any difference is smaller than what counts, which was written
  down before the runs.
- *open*: the runs do not decide it. That can happen even if all of them agree, but are few.
- *no evidence yet*: nothing was run or found that counts.
- A model *trains* if it ends clearly better than an untrained baseline. *BLEU* scores
  translations from 0 to 100. The *learning rate* is how far an update moves the weights.
- The letter is the kind of evidence: A, the document's own experiment; B, trained to the end on two
  data sets; C, a smaller experiment, or timings of a model; D, a computation, timings of a norm
  alone, or a published source.
""",
    groups={
        "supported": "True here",
        "contradicted": "Not true here",
        "mixed": "Parts differ",
        "undecided": "Tested, but open",
        "not measured": "No evidence yet",
    },
    parts={
        "supported": "true",
        "contradicted": "not true",
        "no difference": "not true, too small a difference",
        "undecided": "open",
        "not measured": "no evidence yet",
    },
    part="*{verdict}*: {said} ({grade})",
    said=lambda named: named.statement,
)
_CHINESE = _Language(
    heading="中文",
    opening="""\
这些文档说明 Transformer 为什么用层归一化（LN）而不用批归一化（BN）。每条论断拆成可以单独判断真假的
部分；每一部分用至少五个随机种子的训练来检验，或用计算、一台机器上的计时、已发表的资料来检验。

- *成立*、*不成立*：只针对括号中的数据和模型规模；更大的规模可能不同。
- *不成立，差别太小*：可能有差别，甚至确定有，但小于算数的大小；那在训练之前已经写定。
- *尚无定论*：现有的训练不足以判定；即使各次结果一致，次数太少时也如此。
- *尚无证据*：还没有可以计入的训练或资料。
- 模型*训练成功*，是指最终明显好于什么也没有学到的模型。*BLEU* 给译文打分，从 0 到 100。
  *学习率*是每次更新移动权重的幅度。
- 字母表示证据的种类：A 为文档自己的实验；B 为在两个数据集上训练到收敛；C 为较小的实验或
  模型的计时；D 为计算、归一化本身的计时或已发表的资料。
""",
    groups={
        "supported": "在此成立",
        "contradicted": "在此不成立",
        "mixed": "各部分结论不同",
        "undecided": "已检验，尚无定论",
        "not measured": "尚无证据",
    },
    parts={
        "supported": "成立",
        "contradicted": "不成立",
        "no difference": "不成立，差别太小",
        "undecided": "尚无定论",
        "not measured": "尚无证据",
    },
    part="*{verdict}*：{said}（{grade}）",
    said=lambda named: named.chinese or named.statement,
)


def page(entries: Sequence[Entry]) -> str:
    """Return the whole page."""
    sections = [_section(entries, language) for language in (_ENGLISH, _CHINESE)]
    return "\n".join([f"# {TITLE}\n", f"{WRITTEN}\n", *sections])


def _section(entries: Sequence[Entry], language: _Language) -> str:
    lines = [f"## {language.heading}", "", language.opening]
    for verdict in VERDICTS:
        group = [entry for entry in entries if entry.verdict == verdict]
        if group:
            lines += [f"### {language.groups[verdict]} ({len(group)})", ""]
            lines += [line for entry in group for line in _lines(entry, language)]
            lines.append("")
    return "\n".join(lines)


def _lines(entry: Entry, language: _Language) -> list[str]:
    """Return the line of a claim and the lines of its parts, the decided ones first."""
    number = entry.claim.id
    said = in_markdown(language.said(entry.claim))
    order = list(language.parts)
    parts = sorted(entry.primary, key=lambda each: order.index(each.verdict))
    return [
        f"- [{number}](claims.md#claim-{number}) {said}",
        *(f"  - {_part(each, language)}" for each in parts),
    ]


def _part(decided: Outcome, language: _Language) -> str:
    grade = decided.grade if decided.verdict in DECIDED else None
    said = in_markdown(language.said(decided.part).rstrip(".。"))
    line = language.part if grade else language.part.partition("{said}")[0] + "{said}"
    return line.format(verdict=language.parts[decided.verdict], said=said, grade=grade)
