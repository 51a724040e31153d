"""Each kind of evidence: its text in both languages, and the error if it does not exist."""

import json
import re
import statistics

import pytest

from normlab.articles.evidence import GapEvidence, PartEvidence, ScoreEvidence, TrainsEvidence
from normlab.articles.language import CHINESE, ENGLISH
from normlab.articles.results import Results
from normlab.articles.table import shown
from normlab.config.folders import RESULTS
from normlab.errors import UserError
from tests.articles.one_cell import article

BATCH_NORM = {"of": "translation_norms/small", "row": "bn", "at": "placement=pre"}


@pytest.fixture(scope="module")
def results():
    return Results(RESULTS)


def test_a_mean_and_a_count_match_the_records(results):
    lines = (RESULTS / "translation_norms" / "small" / "records.jsonl").read_text().splitlines()
    runs = [json.loads(line) for line in lines]
    chosen = [run for run in runs if (run["row"], run["point"]) == ("bn", "placement=pre")]
    values, n = [run["scores"]["test/bleu_tok"]["value"] for run in chosen], len(chosen)
    text = ScoreEvidence(score="test/bleu_tok", **BATCH_NORM).text(results, ENGLISH)
    mean, deviation = statistics.fmean(values), statistics.stdev(values)
    assert text == f"{mean:.2f} +- {deviation:.2f} (Multi30k de-en, {n} seeds)"
    assert (
        TrainsEvidence(trains="test/bleu", **BATCH_NORM).text(results, ENGLISH) == f"{n}/{n} train"
    )


def test_minus_and_plus_minus_signs_are_typographic_only_in_typeset_text(results):
    score = ScoreEvidence(score="test/bleu_tok", **BATCH_NORM)
    for language, sign in ((CHINESE, "+-"), (CHINESE.typeset, "\u00b1")):
        assert re.match(rf"\d+\.\d+ {re.escape(sign)} \d", score.text(results, language))
    random = {"of": "batching/small", "row": "bn", "to": "ln", "at": "batching=random"}
    gap = GapEvidence(gap="test/bleu", **random)
    both = [gap.text(results, language) for language in (ENGLISH, ENGLISH.typeset)]
    assert both[1] == both[0].replace("[-", "[\u2212").replace(" -", " \u2212")


def test_a_score_at_the_untrained_baseline_says_so(results):
    row = {"of": "bert_norms/long", "row": "in", "at": "placement=pre"}
    text = ScoreEvidence(score="test/nsp_accuracy", **row, percent=True).text(results, ENGLISH)
    assert text.startswith("50.0 +- 0.0 % (") and text.endswith(ENGLISH.untrained)


def test_a_part_has_its_number_in_the_ledger_and_its_verdict(results):
    shown_part = PartEvidence(part="2.size").shown(results, ENGLISH)
    assert shown_part.line == "does not hold [2.5]" and shown_part.place == "2.5"
    assert PartEvidence(part="2.size").verdict(results) == "contradicted"


@pytest.mark.parametrize(
    ("ours", "message"),
    [
        ("[{part: 2.wrse}]", "no part 2.wrse in .*; parts of claim 2: worse, "),
        ("[{part: 99.worse}]", "no part 99.worse in "),
        (
            "[{check: modes.mismatch, finding: xn, zh: 文}]",
            "no finding 'xn' of .*; choose from bn, ln",
        ),
        (
            "[{score: test/bleu, of: translation_norms/small, row: xn}]",
            "no run of 'xn'; choose from ",
        ),
        (
            "[{score: test/blau, of: translation_norms/small, row: ln, at: placement=pre}]",
            "no score",
        ),
        ("[{score: test/bleu, of: translation_norms/huge, row: ln}]", "records.jsonl: missing"),
    ],
)
def test_missing_evidence_is_an_error_that_names_it(tmp_path, results, ours, message):
    with pytest.raises(UserError, match=message):
        shown(article(tmp_path, ours), "one", results, ENGLISH)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("变化 {moved:.1%}", "the finding's numbers are few, many"),
        ("输出不同", "write {supports: 输出不同}"),
        ("{contradicts: 输出相同}", "now supports its claim"),
    ],
)
def test_a_chinese_finding_must_quote_existing_numbers_or_state_its_standing(
    tmp_path, results, text, message
):
    for good, note in (
        ("变化 {few:.1%}", r"变化 \d+\.\d%。"),
        ("{supports: 输出不同}", "输出不同。"),
    ):
        zh = good if good.startswith("{supports") else f"'{good}'"
        made = article(tmp_path, f"[{{check: modes.mismatch, finding: bn, zh: {zh}}}]")
        assert re.fullmatch(
            rf"\[modes\.mismatch 1\] 成立。{note}", shown(made, "one", results, CHINESE).notes[0]
        )
    zh = text if text.startswith("{contradicts") else f"'{text}'"
    made = article(tmp_path, f"[{{check: modes.mismatch, finding: bn, zh: {zh}}}]")
    with pytest.raises(UserError, match=message):
        shown(made, "one", results, CHINESE)
