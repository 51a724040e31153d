"""Claims of the ledger in Chinese, as lines for a terminal: the answer, and what each part found.

The finding of a computed check, the literature and the questions of the endpoints are in English
only, so a claim ends with the command that prints them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from normlab.articles.evidence import PartItem
from normlab.articles.language import CHINESE
from normlab.articles.layout import folded
from normlab.articles.results import Results

_ARTICLE = "article "


def list_of_claims(claims: Sequence[Mapping[str, Any]], width: int) -> list[str]:
    """Return each claim with its verdict, its answer below it, and the number of each verdict."""
    lines: list[str] = []
    for claim in claims:
        verdict = CHINESE.verdicts[claim["verdict"]]
        lines += folded(f"{claim['id']:<2}  [{verdict}] {claim['chinese']}", width, hang=4)
        lines += [f"    {line}" for line in folded(claim["chinese_answer"], width - 4)]
    counts = Counter(claim["verdict"] for claim in claims)
    tally = [f"{count} 条{CHINESE.verdicts[verdict]}" for verdict, count in counts.most_common()]
    return [*lines, "", CHINESE.comma.join(tally), "normlab claims N --zh 列出一条论断的各部分。"]


def claim_lines(claim: Mapping[str, Any], results: Results, width: int) -> list[str]:
    """Return a claim with its answer, then its parts with their verdicts and findings."""
    articles = "、".join(f"文章 {name.removeprefix(_ARTICLE)}" for name in claim["articles"])
    lines = folded(f"论断 {claim['id']}：{claim['chinese']}", width)
    facts = [("答案", claim["chinese_answer"]), ("结论", CHINESE.verdicts[claim["verdict"]])]
    facts.append(("出自", f"{articles}（docs/explanation/verdicts.md）"))
    lines += _fact_lines(facts, width)
    for part in claim["parts"]:
        lines += ["", *folded(f"{part['part']}. {part['chinese']}", width, hang=3)]
        grade, *_ = part["grades"] or [""]
        verdict = CHINESE.verdicts[part["verdict"]] + (f"（{grade}）" if grade else "")
        item, tested = PartItem(part=f"{claim['id']}.{part['name']}"), part["verdict"]
        measured = item.facts(results, CHINESE) if tested != "not measured" else ""
        of_part = [("结论", verdict), ("实测", measured), ("待测", part["to_measure"])]
        lines += _fact_lines([(name, text) for name, text in of_part if text], width)
    more = f"次要检验、计算检查、文献和记录只有英文：normlab claims {claim['id']}"
    return [*lines, "", *folded(more, width)]


def _fact_lines(facts: Sequence[tuple[str, str]], width: int) -> list[str]:
    """Return facts below each other, indented, each after its name."""
    return [
        f"  {line}" for name, text in facts for line in folded(f"{name}  {text}", width - 2, hang=6)
    ]
