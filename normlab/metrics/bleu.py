"""Decides how translations are scored: sacreBLEU, with its signature kept beside every figure.

Two scales must not be mixed: BLEU on detokenised, cased text (`tokenize="13a"`, comparable between
systems) and BLEU on tokens in lower case (`tokenized_bleu`, the number of the IWSLT'14 papers).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from normlab.records.record import Score


def corpus_bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    lowercase: bool = False,
    tokenize: Literal["13a", "none"] = "13a",
) -> Score:
    """Score translations by corpus BLEU (0 to 100) with sacreBLEU (Post 2018).

    `tokenize="none"` splits at spaces, for text that is already tokenised. `n` counts sentences.
    """
    _check(hypotheses, references)
    # `force` only silences a warning about tokenised text, which the caller here declares.
    metric = BLEU(lowercase=lowercase, tokenize=tokenize, force=tokenize == "none")
    value = metric.corpus_score(list(hypotheses), [list(references)]).score
    return Score(value, True, len(hypotheses), str(metric.get_signature()))


def tokenized_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Score tokenised translations by BLEU on lowercased tokens, as the IWSLT'14 papers do."""
    return corpus_bleu(hypotheses, references, lowercase=True, tokenize="none")


def corpus_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Score translations by corpus chrF2 (0 to 100; Popovic 2015) on detokenised text."""
    _check(hypotheses, references)
    metric = CHRF()
    value = metric.corpus_score(list(hypotheses), [list(references)]).score
    return Score(value, True, len(hypotheses), str(metric.get_signature()))


def _check(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references):
        raise ValueError(
            f"{len(hypotheses)} hypotheses for {len(references)} references; "
            "line i of one must belong to line i of the other"
        )
    if not references:
        raise ValueError("no sentence to score: hypotheses and references are empty")
