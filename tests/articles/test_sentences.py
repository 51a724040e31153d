"""The page of all sentences of the articles, `results/sentences.md`."""

import re

from normlab.articles import pages
from normlab.articles.article import Sentence, load_all
from normlab.articles.evidence_kinds import PartEvidence, RemarkEvidence
from normlab.articles.results import Results
from normlab.articles.sentence_verdict import SentenceVerdict
from normlab.articles.sentences import open_parts
from normlab.claims.in_words.language import Words
from normlab.cli import main
from normlab.config.folders import CONFIG_DIR, RESULTS
from tests.claims.ledgers import saved_claim, saved_part

ARTICLES = load_all(CONFIG_DIR / "article")
ALL = [each for article in ARTICLES.values() for each in article.sentences()]


def sentence(*verdicts, remark=False):
    """Return a sentence with one part per verdict, and results that contain these verdicts."""
    parts = [PartEvidence(part=f"{number}.p") for number, _ in enumerate(verdicts)]
    remarks = [RemarkEvidence(remark=Words("话", "a word"))] if remark else []
    commands = {"not measured": {"to_measure": "normlab study run x", "cost": "5 runs"}}
    claims = {
        number: saved_claim(number, saved_part("p", v, finding="F", **commands.get(v, {})))
        for number, v in enumerate(verdicts)
    }
    evidence = (*remarks, *parts)
    return Sentence(1, "place", "原文", "words", evidence), Results(RESULTS, claims)


def test_open_parts_lists_undecided_parts_and_the_command_to_run():
    each, results = sentence("supported", "undecided", "not measured")
    assert open_parts(each, results) == [
        (1, "1.1", "undecided", "It is worse.", "F", "", ""),
        (2, "2.1", "not measured", "It is worse.", "", "normlab study run x", "5 runs"),
    ]
    page = (RESULTS / pages.SENTENCES).read_text("utf-8")
    assert "](claims.md#claim-2) not measured: Batch norm reaches 28.7 BLEU" in page
    assert re.search(r"undecided: .* Found: .*\. No planned run decides it\.\n", page)


def test_the_page_lists_each_sentence_and_cell_of_the_articles_once():
    passages = [p for a in ARTICLES.values() for s in a.sections for p in s.body]
    shown = [(a, p.table) for a in ARTICLES.values() for s in a.sections for p in s.body if p.table]
    cells = [c for a, name in shown for row in a.tables[name].rows for c in row[1:]]
    assert len(ALL) == len(cells) + sum(bool(p.zh) for p in passages) > 300
    page = (RESULTS / pages.SENTENCES).read_text("utf-8")
    counts = re.search(r"(?m)^\| all \| (.*) \|  \|$", page)[1].split(" | ")
    each = [sum(sentence.article == number for sentence in ALL) for number in ARTICLES]
    assert list(map(int, counts)) == [*each, len(ALL)]
    rows = page.partition("## All sentences")[2].count("\n| ") - 2 * len(ARTICLES)
    assert rows == len(ALL)


def test_the_committed_page_matches_the_output_of_the_command(capsys):
    assert main(["articles", "--markdown"]) == 0
    committed = (RESULTS / pages.SENTENCES).read_text("utf-8")
    assert capsys.readouterr().out == committed, "run: python scripts/blocks.py"


def test_every_sentence_without_a_full_answer_has_a_reason():
    results = Results(RESULTS)
    for each in ALL:
        if SentenceVerdict.of(each.evidence, results).state in (
            "answered in part",
            "open",
            "not tested",
        ):
            assert open_parts(each, results), each
