"""The ledger in plain words, `results/summary.md`: one line per claim, in English and Chinese.

The articles are in Chinese.
"""

from collections.abc import Sequence
from typing import NamedTuple

from normlab.claims.judge import DECIDED
from normlab.claims.ledger import VERDICTS, Entry, Outcome
from normlab.records.labels import in_markdown

_HEAD = """\
# What the documents claim, and what was found: a summary

Written by `normlab claims --write`; do not edit. The evidence: [the ledger](claims.md).
"""
_PARTS = (*DECIDED, "undecided", "not measured")


class _Language(NamedTuple):
    """The wording of the summary in one language.

    `groups` has one heading per verdict in `VERDICTS`, `parts` one label per verdict in `_PARTS`.
    `part` and `decided` are formats of a part's line; `chinese` selects the Chinese statements.
    """

    heading: str
    opening: str
    groups: Sequence[str]
    parts: Sequence[str]
    part: str
    decided: str
    chinese: bool


_ENGLISH = _Language(
    "In English",
    """\
The documents say why Transformers use layer norm (LN) and not batch norm (BN). Each claim is split
into parts that can be true or false on their own. A part is tested by training runs, at least
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
    ("True here", "Not true here", "Parts differ", "Tested, but open", "No evidence yet"),
    ("true", "not true", "not true, too small a difference", "open", "no evidence yet"),
    "*{}*: {}",
    "*{}*: {} ({})",
    False,
)
_CHINESE = _Language(
    "中文",
    """\
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
    ("在此成立", "在此不成立", "各部分结论不同", "已检验，尚无定论", "尚无证据"),
    ("成立", "不成立", "不成立，差别太小", "尚无定论", "尚无证据"),
    "*{}*：{}",
    "*{}*：{}（{}）",
    True,
)


def page(entries: Sequence[Entry]) -> str:
    """Return the whole page."""
    return "\n".join([_HEAD, *(_section(entries, words) for words in (_ENGLISH, _CHINESE))])


def _section(entries: Sequence[Entry], words: _Language) -> str:
    lines = [f"## {words.heading}", "", words.opening]
    for verdict, heading in zip(VERDICTS, words.groups, strict=True):
        group = [entry for entry in entries if entry.verdict == verdict]
        if group:
            lines += [f"### {heading} ({len(group)})", ""]
            for claim, parts in ((entry.claim, entry.primary) for entry in group):
                said = in_markdown((words.chinese and claim.chinese) or claim.statement)
                lines.append(f"- [{claim.id}](claims.md#claim-{claim.id}) {said}")
                ordered = sorted(parts, key=lambda each: _PARTS.index(each.verdict))
                lines += [f"  - {_part(each, words)}" for each in ordered]
            lines.append("")
    return "\n".join(lines)


def _part(outcome: Outcome, words: _Language) -> str:
    said = in_markdown((words.chinese and outcome.part.chinese) or outcome.part.statement)
    verdict = words.parts[_PARTS.index(outcome.verdict)]
    line = words.decided if outcome.verdict in DECIDED and outcome.grade else words.part
    return line.format(verdict, said.rstrip(".。"), outcome.grade)
