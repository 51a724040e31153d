"""Checks of how words are distributed over the positions of a sentence, and of sentence lengths.

`python scripts/positions.py` counts them and writes `results/positions/words.json`. For each corpus
and position, the file has the number of words that occur once, twice and so on. For each corpus, it
has the number of sentences of each length.
"""

import json
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from normlab.claim_checks.check import check, finding
from normlab.claims.evidence import CheckFinding
from normlab.config.folders import CONFIG_DIR

COUNTS = CONFIG_DIR.parent / "results" / "positions" / "words.json"
_SHORT = {"IWSLT'14, English (validation)": "IWSLT'14"}  # names of corpora in the names of findings
DIFFERENT_LENGTHS = 2  # the ratio of the 95th to the 5th percentile
DIFFERENT_ENTROPY = 0.9  # the ratio of the entropies of first words and of all words
Spectrum = Sequence[Sequence[int]]
"""Pairs (n, the number of words that occur n times), or the same for lengths of sentences."""
WordCounts = dict[str, Any]
_Measured = TypeVar("_Measured")


def read_word_counts() -> dict[str, WordCounts]:
    """Return the counts of each corpus. Raise OSError if the file does not exist."""
    return json.loads(COUNTS.read_text("utf-8"))


def entropy(spectrum: Spectrum) -> float:
    """Return the entropy of the words in bits."""
    total = sum(times * number for times, number in spectrum)
    return -sum(n * t / total * math.log2(t / total) for t, n in spectrum)


def probability_of_same_word(spectrum: Spectrum) -> float:
    """Return the probability that two of the words, drawn without replacement, are the same."""
    total = sum(times * number for times, number in spectrum)
    return sum(n * t * (t - 1) for t, n in spectrum) / (total * (total - 1))


def quantile(lengths: Spectrum, share: float) -> int:
    """Return the smallest length that at least this share of the sentences does not exceed."""
    least, below = share * sum(number for _, number in lengths), 0
    for length, number in sorted(lengths, key=lambda row: row[0]):
        below += number
        if below >= least:
            return length
    raise AssertionError("no sentences")


def by_corpus(measure: Callable[[WordCounts], _Measured]) -> dict[str, _Measured]:
    """Return the result of `measure` for each corpus, keyed by the name of the corpus."""
    return {name: measure(corpus) for name, corpus in read_word_counts().items()}


def length_range(corpus: WordCounts) -> tuple[int, int]:
    """Return the 5th and the 95th percentile of the lengths of sentences."""
    return quantile(corpus["lengths"], 0.05), quantile(corpus["lengths"], 0.95)


@check("positions.lengths")
def lengths() -> list[CheckFinding]:
    """Do sentences differ in length: is the 95th percentile at least twice the 5th?"""
    return [
        finding(
            _SHORT.get(name, name),
            f"{name}: sentences differ in length by a factor of 2 or more",
            f"nine of ten have {short} to {long} words",
            holds=long >= DIFFERENT_LENGTHS * short,
            short=float(short),
            long=float(long),
        )
        for name, (short, long) in by_corpus(length_range).items()
    ]


class Entropies(NamedTuple):
    """The entropy in bits of first words, of last words, and of all words."""

    first: float
    last: float
    all: float


def entropies(corpus: WordCounts) -> Entropies:
    """Return the entropies of the first, the last and all words of a corpus."""
    return Entropies(*(entropy(corpus["positions"][key]) for key in ("1", "last", "all")))


@check("positions.differ")
def first_words_differ() -> list[CheckFinding]:
    """Do the words at different positions of a sentence have different distributions?

    They do if the entropy of the first word is below 0.9 times the entropy of all words.
    """
    return [
        finding(
            _SHORT.get(name, name),
            f"{name}: words at the first position are distributed differently from all words",
            f"the first word has {bits.first:.1f} bits of entropy, the last {bits.last:.1f}, any "
            f"word {bits.all:.1f}",
            holds=bits.first < DIFFERENT_ENTROPY * bits.all,
            **bits._asdict(),
        )
        for name, bits in by_corpus(entropies).items()
    ]


class FirstWords(NamedTuple):
    """The share of pairs of first words that are the same, and the same share for any two words.

    `most_common` is the most common first word, and `most_common_share` is the share of sentences
    that start with it.
    """

    same: float
    any_two_same: float
    most_common: str
    most_common_share: float


def first_words(corpus: WordCounts) -> FirstWords:
    """Return how often the first words of a corpus are the same."""
    same, any_two_same = (
        probability_of_same_word(corpus["positions"][key]) for key in ("1", "all")
    )
    word, times = corpus["most"]["1"]
    return FirstWords(same, any_two_same, word, times / corpus["sentences"])


@check("positions.different_words")
def different_words() -> list[CheckFinding]:
    """Do two sentences usually begin with different words?"""
    different = by_corpus(lambda corpus: 1 - first_words(corpus).same)
    return [
        finding(
            _SHORT.get(name, name),
            f"{name}: two sentences usually begin with different words",
            f"in {share:.1%} of pairs",
            holds=share > 0.5,
            different=share,
        )
        for name, share in different.items()
    ]


@check("positions.alike")
def first_words_in_common() -> list[CheckFinding]:
    """Are the first words of two sentences less often the same than any two words?"""
    return [
        finding(
            _SHORT.get(name, name),
            f"{name}: first words of different sentences have less in common than any two words",
            f"two first words are the same in {words.same:.1%} of pairs, any two words in "
            f"{words.any_two_same:.1%}; {words.most_common_share:.0%} of sentences start with "
            f"`{words.most_common}`",
            holds=words.same < words.any_two_same,
            first=words.same,
            all=words.any_two_same,
        )
        for name, words in by_corpus(first_words).items()
    ]
