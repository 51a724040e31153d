"""Formats a claim, or a list of claims, for a terminal in either language (`normlab claims`).

The words are in `templates/language.en.yaml` and `language.zh.yaml`. Statements, answers, verdicts
and the findings of runs and timings are in Chinese, too; the rest is in English.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.cells import cell_len, set_cell_size

from normlab.articles.finding_text import facts_text
from normlab.articles.language import Locale
from normlab.claims.ledger_file import SavedClaim, SavedPart
from normlab.records.labels import one_line
from normlab.terminal import folded


def list_lines(claims: Sequence[SavedClaim], language: Locale, width: int) -> list[str]:
    """Return each claim with its verdict, its answer below it, and the number of each verdict."""
    lines: list[str] = []
    for claim in claims:
        statement = claim.statement_in(language.code)
        verdict = _verdict_word(claim.verdict, language)
        lines += _folded(f"[{verdict}] {statement}", width, f"{claim.id:2}  ", "    ")
        lines += _folded(claim.answer_in(language.code), width, "    - ", "      ")
    counts = Counter(claim.verdict for claim in claims)
    tally = [
        language.claims.count.format(count=count, verdict=_verdict_word(verdict, language))
        for verdict, count in sorted(counts.items())
    ]
    return [*lines, "", language.phrasing.comma.join(tally), language.claims.last_of_list]


def mention_lines(
    claims: Sequence[SavedClaim], words: str, language: Locale, width: int
) -> list[str]:
    """Return a line for each claim whose statement, or a part's statement, has the words."""
    lines: list[str] = []
    for claim in claims:
        for each in claim.statements_with(words)[:1]:
            statement = one_line(each.statement_in(language.code))
            line = f"{claim.id:2}  [{_verdict_word(claim.verdict, language)}] {statement}"
            is_long = cell_len(line) > width
            lines.append(f"{set_cell_size(line, width - 1).rstrip()}\u2026" if is_long else line)
    return [*lines, "", language.claims.last_of_list]


def claim_lines(claim: SavedClaim, language: Locale, width: int) -> list[str]:
    """Return a claim with its answer, its parts, the secondary endpoints, and the records."""
    words, statement = language.claims, claim.statement_in(language.code)
    lines = _folded(words.statement.format(id=claim.id, statement=statement), width)
    lines += _fact_lines(_facts_of_claim(claim, language), language, width)
    for part in claim.parts:
        statement = part.statement_in(language.code)
        lines += ["", *_folded(f"{part.part}. {statement}", width, "", "   ")]
        lines += _fact_lines(_facts_of_part(part, language), language, width)
    if words.secondary and claim.secondary:
        lines += ["", words.secondary]
        for part in claim.secondary:
            lines.append(words.for_part.format(part=part.part))
            lines += _fact_lines(_facts_of_part(part, language), language, width)
    records = dict.fromkeys(name for part in claim.parts for name in part.records)
    if words.records and records:
        lines += ["", words.records, *(f"  {name}" for name in records)]
    if words.last_of_claim:
        lines += ["", *_folded(words.last_of_claim.format(id=claim.id), width)]
    return lines


def _facts_of_claim(claim: SavedClaim, language: Locale) -> Mapping[str, str]:
    words = language.claims
    articles = (_article_name(name, language) for name in claim.articles)
    english = language.code == "en"
    return {
        "answer": claim.answer_in(language.code),
        "verdict": claim.verdict_text if english else _verdict_word(claim.verdict, language),
        "from": words.place.format(articles=words.comma.join(articles)),
        "value": claim.figure or "",
        "see": words.comma.join(claim.see),
        "literature": claim.literature,
    }


def _facts_of_part(part: SavedPart, language: Locale) -> Mapping[str, str]:
    english, to_measure = language.code == "en", language.claims.to_measure
    grade = part.grade_in(language.code)
    graded = grade.join(language.phrasing.ends) if grade else ""
    verdict = language.verdicts[part.verdict] + graded
    command = to_measure.format(command=part.to_measure, cost=part.cost)
    return {
        "verdict": part.verdict_text if english else verdict,
        "question": part.question,
        "found": part.finding if english else facts_text(part, language),
        "test": part.test,
        "excluded": part.excluded,
        "to_measure": command if part.to_measure else "",
    }


def _article_name(name: str, language: Locale) -> str:
    """Return the text for `article 1` of a claim's file, or for our own question, in a language."""
    number = name.removeprefix("article ")
    words = language.claims
    return words.article.format(number=number) if number.isdecimal() else words.own_question


def _verdict_word(verdict: str, language: Locale) -> str:
    """Return a verdict on a claim, in English as in the ledger."""
    return verdict if language.code == "en" else language.verdicts[verdict]


def _fact_lines(facts: Mapping[str, str], language: Locale, width: int) -> list[str]:
    """Return one fact per line, each after its label."""
    labels, label_width = language.claims.labels, language.claims.label_width
    rest = " " * (2 + label_width)
    return [
        line
        for name, text in facts.items()
        if text and name in labels
        for line in _folded(text, width, f"  {set_cell_size(labels[name], label_width)}", rest)
    ]


def _folded(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    return folded(one_line(text), width, first=first, rest=rest)
