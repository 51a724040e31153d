"""BLEU, chrF and the paired bootstrap from sacreBLEU. Every score has its signature.

There are two kinds of BLEU, which must not be compared with each other: BLEU on detokenized, cased
text (`tokenize="13a"`), which is comparable between systems, and BLEU on lowercased tokens, which
the IWSLT'14 papers report. Text is first normalized to NFC, because a file saved on a Mac may write
"é" as two characters.
"""

import unicodedata
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest

from normlab.errors import UserError
from normlab.metrics.glossary import new_score
from normlab.records.record import Score

Lines = Sequence[str]
Tokenize = Literal["13a", "none", "zh", "char"]


def bleu_scores(
    hypotheses: Lines, references: Lines, *, lowercase: bool = False, tokenize: Tokenize = "13a"
) -> dict[str, Score]:
    """Return sacreBLEU's corpus BLEU (0 to 100; Post 2018) and two of its parts, keyed by name.

    The names are `bleu`, `length_ratio` (translation tokens divided by reference tokens) and
    `brevity_penalty` (min(1, exp(1 - 1 / ratio)), Papineni et al. 2002). The `n` of each score is
    the number of sentences. `tokenize="none"` splits at spaces, for text that is already tokenized.
    """
    hypotheses, references = _checked(hypotheses, references)
    # `force` only silences the warning about tokenized text, which is intended here.
    metric = BLEU(lowercase=lowercase, tokenize=tokenize, force=tokenize == "none")
    bleu = metric.corpus_score(hypotheses, [references])
    ratio = bleu.sys_len / bleu.ref_len if bleu.ref_len else 0.0
    values = {"bleu": bleu.score, "brevity_penalty": bleu.bp, "length_ratio": ratio}
    count, signature = len(hypotheses), str(metric.get_signature())
    return {name: new_score(name, float(value), count, signature) for name, value in values.items()}


def scored_as(signature: str) -> dict[str, Any]:
    """Return the `lowercase` and `tokenize` arguments that produce a BLEU signature."""
    parts = dict(part.split(":", 1) for part in signature.split("|") if ":" in part)
    return {"lowercase": parts.get("case") == "lc", "tokenize": parts.get("tok", "13a")}


def corpus_chrf(hypotheses: Lines, references: Lines) -> Score:
    """Return the corpus chrF2 (0 to 100; Popovic 2015) of detokenized translations."""
    hypotheses, references = _checked(hypotheses, references)
    metric = CHRF()
    value = metric.corpus_score(hypotheses, [references]).score
    return new_score("chrf", value, len(hypotheses), str(metric.get_signature()))


class Bootstrap(NamedTuple):
    """The BLEU of two systems on the same sentences, and the p value of their difference.

    `signature` is sacreBLEU's description of how BLEU was computed.
    """

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
    tokenize: Tokenize = "13a",
    samples: int = 1000,
) -> Bootstrap:
    """Test the BLEU difference between two systems, each with one or more outputs per sentence.

    The paired bootstrap (Koehn 2004) tests whether the difference would hold for other sentences.
    It resamples sentences together with all their outputs, so that two outputs for a sentence are
    not treated as two sentences. Both systems need the same number of outputs. With one output
    each, this is `sacrebleu --paired-bs`. The seed is `SACREBLEU_SEED`, by default 12345.
    """
    lines = [[_checked(output, references)[0] for output in side] for side in (baseline, other)]
    sides: list[Any] = [list(zip(*outputs, strict=True)) for outputs in lines]
    systems: Any = list(zip(("baseline", "other"), sides, strict=True))
    metrics: Any = {"BLEU": _OverOutputs(lowercase=lowercase, tokenize=tokenize)}
    test = PairedTest(systems, metrics, [_normal(references)], test_type="bs", n_samples=samples)
    signatures, results = test()
    one, two = cast("list[Any]", results["BLEU"])
    # sacreBLEU returns the smallest p value if both systems have identical outputs.
    p = 1.0 if sides[0] == sides[1] else two.p_value
    return Bootstrap(one.score, two.score, p, str(signatures["BLEU"]))


class _OverOutputs(BLEU):
    """Corpus BLEU over several outputs per sentence."""

    def _extract_corpus_statistics(self, hypotheses: Sequence[Any], references: Any) -> Any:
        count = super()._extract_corpus_statistics
        by_output = [count(list(output), references) for output in zip(*hypotheses, strict=True)]
        return np.sum(by_output, axis=0).tolist()  # sum over the outputs of each sentence


def _checked(hypotheses: Lines, references: Lines) -> tuple[list[str], list[str]]:
    """Return both in NFC. Raise UserError if they differ in length or are empty."""
    if len(hypotheses) != len(references) or not references:
        count = f"{len(hypotheses)} hypotheses for {len(references)} references"
        raise UserError(f"{count}; both need one line per sentence, and at least one sentence")
    return _normal(hypotheses), _normal(references)


def _normal(lines: Lines) -> list[str]:
    return [unicodedata.normalize("NFC", line) for line in lines]
