"""The ledger as JSON and as a Markdown page, and its summary in English and Chinese.

The articles are in Chinese. The same evidence always gives the same bytes.
"""

import json
import posixpath
from collections import Counter
from collections.abc import Iterable, Sequence
from textwrap import fill
from typing import Any, NamedTuple

from normlab.claims.claim import Part
from normlab.claims.decision import DECIDED, p_text
from normlab.claims.endpoint import Measurement
from normlab.claims.ledger import PARTS, VERDICTS, JudgedClaim, JudgedPart
from normlab.records.labels import in_markdown
from normlab.records.packed import RECORDS, address_of
from normlab.records.record import plain

_COLUMNS = ("part", "question", "found", "seeds", "p", "corrected", "verdict")
_HOME = "results"
_WRITTEN = (
    "Written by `normlab claims --write` from the committed records and the computed checks; do "
    "not edit. `normlab claims N` shows a claim in the terminal, `normlab claims --verify` "
    "verifies this page."
)
_CARE = (
    "**Read with care.** A verdict holds for the data, the size and the settings that its grade "
    "names, not for the articles' own experiments, whose code is unknown. Only grade A is about "
    "these."
)
_RULES = (
    "[How verdicts are made](../docs/explanation/verdicts.md) says how parts are decided and "
    "corrected, and lists the five articles."
)


def verdict_text(entry: JudgedClaim) -> str:
    """Return the verdict with its grades, such as `contradicted (C: Multi30k, 2+2 layers)`."""
    details = "; ".join(filter(None, (entry.counts, entry.grades)))
    return f"{entry.verdict} ({details})" if details else entry.verdict


def part_text(part: Part) -> str:
    """Return the statement of a part, with its note."""
    return f"{part.statement} ({part.note})" if part.note else part.statement


def outcome_text(outcome: JudgedPart) -> str:
    """Return the verdict of an endpoint with its grade."""
    return f"{outcome.verdict} ({outcome.grade})" if outcome.grade else outcome.verdict


def value_text(outcome: JudgedPart) -> str:
    """Return the value with its interval, the values behind it, and the reason if it is open."""
    decision = outcome.decision
    both = f"{decision.value} ({decision.detail})" if decision.value and decision.detail else ""
    text = both or decision.value or decision.detail
    return "; ".join(filter(None, (text, outcome.reason)))


def seeds_text(outcome: JudgedPart) -> str:
    """Return the number of seeds or rounds, and the confidence of the interval."""
    basis, estimate = outcome.basis, outcome.decision.estimate
    if not basis.n:
        return ""
    text = f"{basis.n} {basis.repeats}{'s' if basis.n != 1 else ''}"
    return text if estimate is None else f"{text}, {100 * estimate.confidence:g} %"


def saved(entries: Sequence[JudgedClaim]) -> str:
    """Return the ledger as JSON, `results/claims.json`; numbers have six digits."""
    return json.dumps([_claim(entry) for entry in entries], ensure_ascii=False, indent=1) + "\n"


def _claim(entry: JudgedClaim) -> dict[str, Any]:
    claim = entry.claim
    fields = ("statement", "chinese", "answer", "chinese_answer", "figure", "documents", "see")
    return {
        "id": claim.id,
        "verdict": entry.verdict,
        "said": verdict_text(entry),
        **{name: getattr(claim, name) for name in fields},
        "literature": claim.literature.strip(),
        "parts": list(map(_outcome, entry.primary)),
        "secondary": list(map(_outcome, entry.secondary)),
    }


def _outcome(outcome: JudgedPart) -> dict[str, Any]:
    decision, basis = outcome.decision, outcome.basis
    numbers: dict[str, float | None] = {"p": _p(outcome), "p_corrected": outcome.p_holm}
    if (estimate := decision.estimate) is not None:
        numbers["confidence"] = estimate.confidence
        numbers |= {"value": estimate.mean, "low": estimate.low, "high": estimate.high}
    corrected = "" if outcome.p_holm is None else f" (corrected {p_text(outcome.p_holm)})"
    tested = f"p {p_text(_p(outcome))}{corrected}, {seeds_text(outcome)}"
    return {
        "part": outcome.number,
        "name": outcome.part.name,
        "statement": part_text(outcome.part),
        "chinese": outcome.part.chinese,
        "question": outcome.question,
        "verdict": outcome.verdict,
        "said": outcome_text(outcome),
        "grades": [grade_in_chinese(outcome), outcome.grade] if outcome.grade else [],
        "found": value_text(outcome),
        "unit": outcome.endpoint.unit,
        **outcome.finding,
        "test": "" if _p(outcome) is None else tested,
        **({"trained": basis.trained} if basis.trained else {}),
        "excluded": "; ".join(basis.excluded),
        **_measurement(outcome.judgement.to_measure),
        "n": basis.n,
        **{name: plain(float(f"{x:.6g}")) for name, x in numbers.items() if x is not None},
        "records": list(dict.fromkeys(path.partition("@seed")[0] for path in basis.records)),
    }


def _measurement(more: Measurement | None) -> dict[str, str]:
    return {"to_measure": more.command if more else "", "cost": more.cost if more else ""}


def _p(outcome: JudgedPart) -> float | None:
    p = outcome.decision.p
    return None if p is None else p.observed


def markdown(entries: Sequence[JudgedClaim]) -> str:
    """Return the page in Markdown, `results/claims.md`."""
    counts = Counter(entry.verdict for entry in entries)
    tally = ", ".join(f"{counts[name]} {name}" for name in VERDICTS)
    meanings = "; ".join(f"*{name}*: {meaning}" for name, meaning in VERDICTS.items())
    rows = [
        [
            f"[{(claim := entry.claim).id}](#claim-{claim.id})",
            claim.statement,
            claim.answer,
            ", ".join(claim.documents),
            claim.figure or "-",
            _bold(verdict_text(entry), entry.verdict),
        ]
        for entry in entries
    ]
    blocks = [
        "# The claims of the articles, and what was found",
        *(fill(text, 100) for text in (_WRITTEN, _CARE, f"{meanings}. {_RULES}")),
        f"{len(entries)} claims: {tally}.",
        _table(["#", "claim", "answer", "from", "its value", "verdict"], rows),
        *(_section(entry) for entry in entries),
    ]
    return "\n\n".join(blocks) + "\n"


def _section(entry: JudgedClaim) -> str:
    claim = entry.claim
    figure = f"; its value: {claim.figure}" if claim.figure else ""
    see = ", ".join(f"[{path}]({posixpath.relpath(path, _HOME)})" for path in claim.see)
    facts = [
        f"- Answer: {claim.answer}",
        f"- Verdict: {_bold(verdict_text(entry), entry.verdict)}",
        f"- Literature: {claim.literature.strip()}",
        *([f"- See also: {see}"] if see else []),
    ]
    blocks = [
        f"## Claim {claim.id}",
        f"{claim.statement} ({', '.join(claim.documents)}{figure})",
        "\n".join(facts),
        "\n".join(f"{each.number}. {part_text(each.part)}" for each in entry.primary),
        _table(_COLUMNS, map(_row, entry.primary)),
    ]
    lines: list[str] = []
    for outcome in entry.primary:
        part = f"- Part {outcome.number}"
        if measure := outcome.judgement.to_measure:
            lines.append(f"{part}, to measure: `{measure.command}` ({measure.cost})")
        if excluded := outcome.basis.excluded:
            lines.append(f"{part}, runs that do not count: {'; '.join(excluded)}")
    if lines:
        blocks.append("\n".join(lines))
    if entry.secondary:
        table = _table(_COLUMNS, map(_row, entry.secondary))
        blocks += ["<details><summary>Secondary, never counted</summary>", table, "</details>"]
    return "\n\n".join(blocks)


def _row(outcome: JudgedPart) -> list[str]:
    return [
        str(outcome.number),
        outcome.question,
        " ".join(filter(None, (value_text(outcome), _links(outcome)))) or "-",
        seeds_text(outcome) or "-",
        p_text(_p(outcome)),
        p_text(outcome.p_holm),
        _bold(outcome_text(outcome), outcome.verdict),
    ]


def _links(outcome: JudgedPart) -> str:
    """Return a link to each file on which an outcome is based, with the rows of its records."""
    files: dict[str, dict[str, None]] = {}
    for path in outcome.basis.records:
        packed = address_of(path, packed=False)
        file = path if packed is None else f"{packed.folder}/{RECORDS}"
        rows = files.setdefault(posixpath.relpath(file, _HOME), {})
        if packed is not None:
            rows[packed.name] = None
    links = []
    for link, rows in files.items():
        name = posixpath.dirname(link) if rows else posixpath.basename(link)
        links.append(f"[{name}]({link})" + (f": {', '.join(rows)}" if rows else ""))
    return "; ".join(links)


def _bold(text: str, verdict: str) -> str:
    return f"**{verdict}**{text.removeprefix(verdict)}"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(in_markdown(cell) for cell in row) + " |" for row in cells)


_HEAD = """\
# What the articles claim, and what was found: a summary

Written by `normlab claims --write`; do not edit. [What was found](README.md) is one page, in the
order in which a reader asks; the evidence is in [the ledger](claims.md).
"""


class _Language(NamedTuple):
    """The words of the summary in one language.

    `groups` has one heading per verdict in `VERDICTS`, `parts` one label per verdict in `PARTS`.
    `part` and `decided` are format strings for a part's line.
    """

    heading: str
    opening: str
    groups: Sequence[str]
    parts: Sequence[str]
    part: str
    decided: str


_ENGLISH = _Language(
    "In English",
    """\
Five articles say why Transformers use layer norm (LN) and not batch norm (BN). Below each claim is
its answer. A claim is split into parts that can be true or false on their own. A part is tested by
training runs, at least five that differ in their random start, or by a computation, timings on one
machine, or published sources. The parts that are decided make the claim true, not true or, if they
disagree, partly true.

- *true* and *not true* hold for the data and the model size in brackets; larger ones may differ.
- *not true, too small a difference*: any difference is smaller than what counts, which was written
  down before the runs.
- *open*: the runs do not decide it. That can happen even if all of them agree, but are few.
- *no evidence yet*: nothing was run or found that counts.
- A model *trains* if it ends clearly better than an untrained baseline. *BLEU* scores
  translations from 0 to 100. The *learning rate* is how far an update moves the weights.
- The letter is the kind of evidence: A, the article's own experiment; B, trained to the end on two
  data sets; C, a smaller experiment, or timings of a model; D, a computation, timings of a norm
  alone, or a published source.
""",
    ("True here", "Not true here", "Partly true", "Open", "Not tested"),
    ("true", "not true", "not true, too small a difference", "open", "no evidence yet"),
    "*{}*: {}",
    "*{}*: {} ({})",
)
_CHINESE = _Language(
    "中文",
    """\
五篇文章说明 Transformer 为什么用层归一化（LN）而不用批归一化（BN）。每条论断之下先是回答。论断拆成
可以单独判断真假的部分；每一部分用至少五个随机种子的训练来检验，或用计算、一台机器上的计时、已发表的
资料来检验。已判定的部分都成立，则论断成立；都不成立，则不成立；不一致，则部分成立。

- *成立*、*不成立*：只针对括号中的数据和模型规模；更大的规模可能不同。
- *不成立，差别太小*：可能有差别，甚至确定有，但小于训练前设定的最小有意义差异。
- *尚无定论*：现有的训练不足以判定；即使各个种子结果一致，种子数太少时也如此。
- *尚无证据*：还没有可以计入的训练或资料。
- 模型*训练成功*，是指最终明显好于未经训练的基线；*种子数*是训练成功的随机种子的个数。
  *BLEU* 给译文打分，从 0 到 100。*学习率*是每次更新移动权重的幅度。
- 括号里的字母是证据等级：A 为文章自己的实验；B 为在两个数据集上训练到收敛；C 为较小的实验
  或整个模型的计时；D 为计算、归一化本身的计时或已发表的资料。字母后面是数据和模型规模。
""",
    ("在此成立", "在此不成立", "部分成立", "尚无定论", "未检验"),
    ("成立", "不成立", "不成立，差别太小", "尚无定论", "尚无证据"),
    "*{}*：{}",
    "*{}*：{}（{}）",
)


def summary(entries: Sequence[JudgedClaim]) -> str:
    """Return the summary in plain words, `results/summary.md`: one line per claim and part."""
    return "\n".join([_HEAD, *(_summary(entries, words) for words in (_ENGLISH, _CHINESE))])


def _summary(entries: Sequence[JudgedClaim], words: _Language) -> str:
    lines = [f"## {words.heading}", "", words.opening]
    for verdict, heading in zip(VERDICTS, words.groups, strict=True):
        group = [entry for entry in entries if entry.verdict == verdict]
        if group:
            lines += [f"### {heading} ({len(group)})", ""]
            for claim, parts in ((entry.claim, entry.primary) for entry in group):
                statement = in_markdown((words is _CHINESE and claim.chinese) or claim.statement)
                answer = claim.chinese_answer if words is _CHINESE else claim.answer
                lines.append(f"- [{claim.id}](claims.md#claim-{claim.id}) {statement}")
                lines.append(f"  **{in_markdown(answer)}**")
                ordered = sorted(parts, key=lambda each: PARTS.index(each.verdict))
                lines += [f"  - {_part(each, words)}" for each in ordered]
            lines.append("")
    return "\n".join(lines)


CHINESE_DATA = {
    "AMD EPYC bf16": "AMD EPYC，bf16",
    "Brown": "Brown 语料",
    "Brown, 1,000 updates": "Brown 语料，1,000 次更新",
    "Brown, 2,000 updates": "Brown 语料，2,000 次更新",
    "Brown, 2,400 updates": "Brown 语料，2,400 次更新",
    "Brown, 2,500 updates": "Brown 语料，2,500 次更新",
    "Brown, bf16": "Brown 语料，bf16",
    "Brown, language model, 64 to 128 tokens": "Brown 语料，语言模型，64 到 128 个词元",
    "Brown, masked tokens, 64 to 128": "Brown 语料，掩码词元，64 到 128",
    "Brown, trained to 64 tokens": "Brown 语料，训练长度不超过 64 个词元",
    "Brown, trained to 64 tokens, 1,800 updates": (
        "Brown 语料，训练长度不超过 64 个词元，1,800 次更新"
    ),
    "CIFAR-10, 4,000 of its training pictures, width 64": "CIFAR-10 的 4,000 张训练图片，宽度 64",
    "CIFAR-10, a quarter of its training pictures": "CIFAR-10 的四分之一训练图片",
    "CIFAR-10, a quarter of its training pictures, 700 updates": (
        "CIFAR-10 的四分之一训练图片，700 次更新"
    ),
    "CIFAR-10 by rows": "逐行读入的 CIFAR-10",
    "IWSLT'14 de-en": "IWSLT'14 德译英",
    "Multi30k de, Python's documentation and CIFAR-10, small models": (
        "Multi30k 德语、Python 文档和 CIFAR-10，小模型"
    ),
    "Multi30k de-en": "Multi30k 德译英",
    "Multi30k de-en, batches of mixed lengths": "Multi30k 德译英，长短句混合的批次",
    "Multi30k de-en, rates by short trials": "Multi30k 德译英，学习率由短训练选出",
    "Python's documentation": "Python 文档",
    "Python's documentation and Brown": "Python 文档和 Brown 语料",
    "Python's documentation and CIFAR-10": "Python 文档和 CIFAR-10",
    "Python's documentation and CIFAR-10, small models": "Python 文档和 CIFAR-10，小模型",
    "Python's documentation, 32 tokens of a text": "Python 文档，每段文本 32 个词元",
    "Python's documentation, width 128": "Python 文档，宽度 128",
    "Python's documentation, width 128, 2,000 updates": "Python 文档，宽度 128，2,000 次更新",
    "Python's documentation, width 64": "Python 文档，宽度 64",
    "Python's documentation, width 64, 700 updates": "Python 文档，宽度 64，700 次更新",
    "Python's documentation, width 64, 1,000 updates": "Python 文档，宽度 64，1,000 次更新",
    "Python's documentation, width 64, 2,000 updates": "Python 文档，宽度 64，2,000 次更新",
    "Shakespeare, characters": "莎士比亚文本，按字符",
    "Tatoeba de-en": "Tatoeba 德译英",
    "WikiText-103, masked tokens, 128 to 256": "WikiText-103，掩码词元，128 到 256",
    "WikiText-103, trained to 64 tokens": "WikiText-103，训练长度不超过 64 个词元",
    "Wikipedia": "维基百科",
    "digits": "数字图片",
    "digits 8x8": "8x8 的数字图片",
    "mini-TED, the valid split of IWSLT'14 de-en": "mini-TED（IWSLT'14 德译英的验证集）",
    "the Brown corpus": "Brown 语料",
    "the built-in corpus": "内置语料",
    "the toy corpus": "内置语料",
    "the toy corpus, 3,000 pairs": "内置语料，3,000 个句对",
    "the toy corpus, rates between": "内置语料，居中的学习率",
    "wine and cancer": "UCI 的葡萄酒和乳腺癌数据",
    "wine and breast cancer of the UCI repository": "UCI 的葡萄酒和乳腺癌数据",
    "wine and breast cancer of the UCI repository, 2,000 updates": (
        "UCI 的葡萄酒和乳腺癌数据，2,000 次更新"
    ),
}
"""The Chinese names of the data, models and machines of studies; other names are not translated."""


def data_in_chinese(name: str) -> str:
    """Return the Chinese name of a study's data, or `name` itself if it is a proper name."""
    return CHINESE_DATA.get(name, name)


def grade_in_chinese(outcome: JudgedPart) -> str:
    """Return the grade with its setting in Chinese, such as `C：Multi30k 德译英，2+2 层`."""
    if not outcome.grade:
        return ""
    letter, setting = outcome.basis.grade, outcome.basis.setting
    data = data_in_chinese(setting.data)
    where = f"{data}，{' 到 '.join(setting.layers)} 层" if setting.layers else data
    return f"{letter}：{where}" if where else f"{letter}"


def _part(outcome: JudgedPart, words: _Language) -> str:
    statement = in_markdown((words is _CHINESE and outcome.part.chinese) or outcome.part.statement)
    verdict = words.parts[PARTS.index(outcome.verdict)]
    line = words.decided if outcome.verdict in DECIDED and outcome.grade else words.part
    grade = grade_in_chinese(outcome) if words is _CHINESE else outcome.grade
    return line.format(verdict, statement.rstrip(".。"), grade)
