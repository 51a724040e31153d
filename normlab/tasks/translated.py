"""Scores of translated text, and what translation scores are worth without learning."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from normlab.data.corpus import Corpus, ParallelText
from normlab.data.encoded import EncodedPairs
from normlab.data.prepare import PreparedTranslation
from normlab.metrics.bleu import (
    Tokenize,
    bleu_scores,
    corpus_chrf,
    tokenized_bleu,
    tokenizer_of,
)
from normlab.metrics.counts import perplexity, unigram_nll
from normlab.records.record import Score
from normlab.records.store import HYPOTHESES_FILE, read_hypotheses

_NAMES = (
    *("loss", "nll", "perplexity", "bleu", "brevity_penalty", "length_ratio", "chrf", "bleu_tok"),
)


@contextmanager
def reduced(task: Any, split: str, chosen: np.ndarray) -> Iterator[None]:
    """Within the block a split of translation has only these sentences: BLEU needs all of it."""
    whole = task.data
    pairs, text = whole.pairs[split], whole.texts[split]
    fewer = EncodedPairs(pairs.source.select(chosen), pairs.target.select(chosen))
    lines = ([text.source[i] for i in chosen], [text.target[i] for i in chosen])
    task.data = replace(
        whole,
        pairs={**whole.pairs, split: fewer},
        texts={**whole.texts, split: ParallelText(*lines)},
    )
    try:
        yield
    finally:
        task.data = whole


def names(text: Corpus | PreparedTranslation) -> Sequence[str]:
    """Return the scores of a validation; ValueError for a target that BLEU cannot be taken of."""
    bleu_tokenizer(text)
    return _NAMES


def plain_scores(data: PreparedTranslation, split: str, lines: Sequence[str]) -> dict[str, Score]:
    """Score plain translations of a split in its order: BLEU with its parts, and chrF."""
    references = data.plain(data.texts[split].target)
    lowercase = data.form != "raw"  # tokenised text has lost its case
    return {
        **bleu_scores(lines, references, lowercase=lowercase, tokenize=bleu_tokenizer(data)),
        "chrf": corpus_chrf(lines, references),
    }


def bleu_tokenizer(data: Corpus | PreparedTranslation) -> Tokenize:
    """Return how BLEU cuts the plain target text; ValueError where it cannot.

    Text that came in words has been put together with spaces where its language has none.
    """
    return tokenizer_of(data.languages[1]) if data.form == "raw" else "13a"


def samples(task: object, folder: Path, count: int = 3) -> list[tuple[str, str, str]]:
    """Return sources, references and what a run translated, of some sentences over all of the test.

    `folder` is the run's. Empty for a task that does not translate.
    """
    data = getattr(task, "data", None)
    if not (isinstance(data, PreparedTranslation) and (folder / HYPOTHESES_FILE).is_file()):
        return []
    text, (_, outputs) = data.texts["test"], read_hypotheses(folder)
    chosen = np.linspace(0, len(outputs) - 1, min(count, len(outputs))).astype(int).tolist()
    sources = [text.source[i] for i in chosen]
    references = data.plain([text.target[i] for i in chosen])
    return list(zip(sources, references, (outputs[i] for i in chosen), strict=True))


def token_score(data: PreparedTranslation, split: str, lines: list[str]) -> Score:
    """Score decoded lines of a split by BLEU on lowercased Moses tokens."""
    return tokenized_bleu(data.words(lines), data.words(data.texts[split].target))


def floors(data: PreparedTranslation, split: str, *, label_smoothing: float) -> dict[str, float]:
    """Return BLEU and chrF of copying the source, and the losses of one guess for all tokens.

    Each loss is that of its best guess: the frequencies of the target tokens and, for the smoothed
    loss, these frequencies smoothed like the targets (the entropy of what is asked for).
    """
    source = data.texts[split].source
    copied = plain_scores(data, split, data.plain(source))
    target = data.pairs[split].target
    counts = np.bincount(target.ids, minlength=len(data.target_tokenizer))
    counts[data.target_tokenizer.eos_id] += len(target)
    tokens, nll = int(counts.sum()), unigram_nll(counts.tolist())
    guess = (1 - label_smoothing) * counts / tokens + label_smoothing / len(counts)
    guess = guess[guess > 0]
    return {
        "loss": float(-(guess * np.log(guess)).sum()),
        "nll": nll / tokens,
        "perplexity": perplexity(nll, tokens).value,
        "bleu": copied["bleu"].value,
        "bleu_tok": token_score(data, split, source).value,
        "chrf": copied["chrf"].value,
    }
