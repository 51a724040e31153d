"""How good single translations are. Figures of a corpus are in `bleu.py`."""

from collections.abc import Iterable, Sequence


def sentence_chrf(hypotheses: Iterable[str], references: Sequence[str]) -> list[float]:
    """Score each translation alone by chrF2 (0 to 100; Popovic 2015) on detokenised text."""
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF()
    return [
        float(metric.sentence_score(hypothesis, [reference]).score)
        for hypothesis, reference in zip(hypotheses, references, strict=True)
    ]
