"""Evidence from runs: means, counts and gaps in both languages."""

import json
import re
import statistics

import pytest

from normlab.articles.evidence_kinds import GapEvidence, ScoreEvidence, TrainsEvidence
from normlab.articles.results import Results
from normlab.claims.in_words.language import CHINESE, ENGLISH
from normlab.config.folders import RESULTS
from normlab.records.packed import Key, write_pack
from tests.records.examples import record

BATCH_NORM = {"of": "translation_norms/small", "row": "bn", "at": "placement=pre"}


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


def test_english_has_typographic_signs_only_in_typeset_text_and_chinese_always_has_plus_minus(
    results,
):
    score = ScoreEvidence(score="test/bleu_tok", **BATCH_NORM)
    for language, sign in ((ENGLISH, "+-"), (ENGLISH.typeset, "\u00b1"), (CHINESE, "\u00b1")):
        assert re.match(rf"\d+\.\d+ {re.escape(sign)} \d", score.text(results, language))
    random = {"of": "batching/small", "row": "bn", "to": "ln", "at": "batching=random"}
    gap = GapEvidence(gap="test/bleu", **random)
    both = [gap.text(results, language) for language in (ENGLISH, ENGLISH.typeset)]
    assert both[1] == both[0].replace("[-", "[\u2212").replace(" -", " \u2212")


def test_a_score_at_the_untrained_baseline_is_labelled_as_such(results):
    row = {"of": "bert_norms/long", "row": "in", "at": "placement=pre"}
    text = ScoreEvidence(score="test/nsp_accuracy", **row, percent=True).text(results, ENGLISH)
    assert text.startswith("50.0 +- 0.0 % (") and text.endswith(ENGLISH.runs.untrained)


def test_if_another_score_shows_that_a_row_did_not_learn_it_is_named(results):
    row = {"of": "bert_norms/long", "row": "in", "at": "placement=pre"}
    steps = ScoreEvidence(score="valid/steps_to_converge", **row)
    assert steps.text(results, CHINESE).endswith("；其损失不明显好于未训练的基线")
    assert steps.text(results, ENGLISH).endswith(
        "; its loss is not clearly better than the untrained baseline"
    )


def test_the_runs_of_a_row_that_converged_are_counted_as_such(results):
    row = {"of": "bert_norms/long", "row": "ln", "at": "placement=pre"}
    steps = ScoreEvidence(score="valid/steps_to_converge", **row)
    assert steps.text(results, ENGLISH).startswith("converged in 4 of 5 runs (")
    assert steps.text(results, CHINESE).startswith("5 次训练中有 4 次收敛（")


def test_if_every_run_of_a_row_diverged_none_trains(tmp_path):
    for row, status in (("bn", "diverged"), ("ln", "finished")):
        runs = {Key(row, "", k): record(norm=row, seed=k, bleu=None, status=status) for k in (1, 2)}
        write_pack(tmp_path / row / "small", runs)
    every = {"of": "bn/small", "row": "bn"}
    for evidence in (
        TrainsEvidence(trains="test/bleu", **every),
        ScoreEvidence(score="x", **every),
    ):
        assert evidence.text(Results(tmp_path), ENGLISH) == "0/2 train"
    unscored = TrainsEvidence(trains="test/bleu", of="ln/small", row="ln")
    with pytest.raises(ValueError, match=r"row 'ln' has no score test/bleu"):
        unscored.text(Results(tmp_path), ENGLISH)


@pytest.mark.parametrize("row", ["bn", "ln"])
@pytest.mark.parametrize("lost", [1, 2])
def test_if_seeds_diverged_a_gap_and_a_mean_say_how_many_did_not(row, lost, tmp_path):
    diverged = [Key(row, "", seed) for seed in range(1, lost + 1)]
    runs = {
        key: record(norm=key.row, seed=key.seed, bleu=None, status="diverged")
        if key in diverged
        else record(norm=key.row, seed=key.seed, bleu=30.0)
        for key in (Key(row, "", seed) for row in ("bn", "ln") for seed in (1, 2))
    }
    write_pack(tmp_path / "batching" / "small", runs)
    gap = GapEvidence(gap="test/bleu", of="batching/small", row="bn", to="ln")
    assert gap.text(Results(tmp_path), ENGLISH) == f"{row} {2 - lost}/2 train"
    mean = ScoreEvidence(score="test/bleu", of="batching/small", row=row)
    said = mean.text(Results(tmp_path), ENGLISH)
    assert said == "0/2 train" if lost == 2 else said.endswith("; 1 of 2 runs finished")
