"""BLEU, chrF and the paired bootstrap from sacreBLEU; every score carries its signature.

Do not compare the two kinds of BLEU: BLEU on detokenized, cased text (`tokenize="13a"`, comparable
between systems) and BLEU on lowercased tokens, which the IWSLT'14 papers report.
"""

import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest

from normlab.records.record import Score

Lines = Sequence[str]
Tokenize = Literal["13a", "none", "zh"]
_UNSPLIT = ("ja", "ko", "th", "lo", "km", "my", "bo", "dz")  # 13a cannot find their words


def tokenizer_of(language: str) -> Tokenize:
    """Return sacreBLEU's tokenizer for text of a language, such as `de`, `zh` or `zh-CN`.

    Raises ValueError for a language that sacreBLEU alone cannot split into words.
    """
    code = re.split("[-_]", language.lower())[0]
    if code in _UNSPLIT:
        raise ValueError(
            f"sacreBLEU cannot split target language {language} into words: set "
            "task.corpus.form=tokenized and provide text that is split into words"
        )
    return "zh" if code == "zh" else "13a"


def bleu_scores(
    hypotheses: Lines, references: Lines, *, lowercase: bool = False, tokenize: Tokenize = "13a"
) -> dict[str, Score]:
    """Return sacreBLEU's corpus BLEU (0 to 100; Post 2018) and its parts; `n` counts sentences.

    The keys are `bleu`, `length_ratio`, translation tokens divided by reference tokens, and
    `brevity_penalty`, min(1, exp(1 - 1 / ratio)) (Papineni et al. 2002). `tokenize="none"` splits
    at spaces, for text that is already tokenized.
    """
    _check(hypotheses, references)
    # `force` only silences the warning about tokenized text, which is intended here.
    metric = BLEU(lowercase=lowercase, tokenize=tokenize, force=tokenize == "none")
    found = metric.corpus_score(list(hypotheses), [list(references)])
    ratio = found.sys_len / found.ref_len if found.ref_len else 0.0
    values = {"bleu": found.score, "brevity_penalty": found.bp, "length_ratio": ratio}
    count, signature = len(hypotheses), str(metric.get_signature())
    return {name: Score(float(value), True, count, signature) for name, value in values.items()}


def corpus_chrf(hypotheses: Lines, references: Lines) -> Score:
    """Return the corpus chrF2 (0 to 100; Popovic 2015) of detokenized translations."""
    _check(hypotheses, references)
    metric = CHRF()
    value = metric.corpus_score(list(hypotheses), [list(references)]).score
    return Score(value, True, len(hypotheses), str(metric.get_signature()))


class Bootstrap(NamedTuple):
    """BLEU of two systems on the same sentences, the p value of the difference, the signature."""

    baseline: float
    other: float
    p: float
    signature: str


def paired_bootstrap(
    baseline: Sequence[Lines],
    other: Sequence[Lines],
    references: Lines,
    *,
    lowercase: bool = False,
    samples: int = 1000,
) -> Bootstrap:
    """Test the BLEU difference between two systems, each with one or more outputs per sentence.

    The paired bootstrap (Koehn 2004) tests whether the difference would hold on other sentences. It
    resamples sentences together with all their outputs, so that two outputs of one sentence are not
    treated as two sentences. Both systems need the same number of outputs. With one output each
    this is `sacrebleu --paired-bs`; the seed is `SACREBLEU_SEED`, by default 12345.
    """
    for output in (*baseline, *other):
        _check(output, references)
    sides: list[Any] = [list(zip(*outputs, strict=True)) for outputs in (baseline, other)]
    systems: Any = list(zip(("baseline", "other"), sides, strict=True))
    metrics: Any = {"BLEU": _OverOutputs(lowercase=lowercase)}
    test = PairedTest(systems, metrics, [list(references)], test_type="bs", n_samples=samples)
    signatures, found = test()
    one, two = cast("list[Any]", found["BLEU"])
    # sacreBLEU returns the smallest p value if both systems have identical outputs.
    p = 1.0 if sides[0] == sides[1] else two.p_value
    return Bootstrap(one.score, two.score, p, str(signatures["BLEU"]))


class _OverOutputs(BLEU):
    """Corpus BLEU over several outputs per sentence."""

    def _extract_corpus_statistics(self, hypotheses: Sequence[Any], references: Any) -> Any:
        count = super()._extract_corpus_statistics
        by_output = [count(list(output), references) for output in zip(*hypotheses, strict=True)]
        return np.sum(by_output, axis=0).tolist()  # sum over the outputs of each sentence


def _check(hypotheses: Lines, references: Lines) -> None:
    if len(hypotheses) != len(references) or not references:
        count = f"{len(hypotheses)} hypotheses for {len(references)} references"
        raise ValueError(f"{count}; give one line of each per sentence, for a sentence or more")
