"""How words are distributed over the positions of a sentence, and how long sentences are.

`python scripts/positions.py` counts the words; `results/positions/words.json` has, for each corpus
and position, how many words occur how often, and how many sentences have which length.
"""

import json
import math
from collections.abc import Sequence
from typing import Any

from normlab.claims.evidence import CheckFinding
from normlab.config.folders import CONFIG_DIR
from normlab.inspection.claim_checks.check import check, finding

COUNTS = CONFIG_DIR.parent / "results" / "positions" / "words.json"
_SHORT = {"IWSLT'14, English (validation)": "IWSLT'14"}  # corpora by which claims name findings
Spectrum = Sequence[Sequence[int]]
"""How many words occur how often: pairs (times, number of words)."""


def read() -> dict[str, Any]:
    """Return the counts of each corpus; OSError if the checkout has none."""
    return json.loads(COUNTS.read_text("utf-8"))


def entropy(spectrum: Spectrum) -> float:
    """Return the entropy of the words in bits."""
    total = sum(times * number for times, number in spectrum)
    return -sum(n * t / total * math.log2(t / total) for t, n in spectrum)


def alike(spectrum: Spectrum) -> float:
    """Return the probability that two of the words, drawn without replacement, are the same."""
    total = sum(times * number for times, number in spectrum)
    return sum(n * t * (t - 1) for t, n in spectrum) / (total * (total - 1))


def quantile(lengths: Spectrum, share: float) -> int:
    """Return the length that this share of the sentences does not exceed."""
    least, below = share * sum(number for _, number in lengths), 0
    for length, number in sorted(lengths, key=lambda row: row[0]):
        below += number
        if below >= least:
            return length
    raise AssertionError("no sentences")


@check("positions.lengths")
def lengths() -> list[CheckFinding]:
    """Do sentences differ in length: is the 95th percentile at least twice the 5th?"""
    findings = []
    for name, corpus in read().items():
        short, long = (quantile(corpus["lengths"], share) for share in (0.05, 0.95))
        answer = f"nine of ten have {short} to {long} words"
        statement = f"{name}: sentences differ in length by a factor of 2 or more"
        numbers = {"short": float(short), "long": float(long)}
        findings.append(
            finding(_SHORT.get(name, name), statement, answer, holds=long >= 2 * short, **numbers)
        )
    return findings


@check("positions.differ")
def differ() -> list[CheckFinding]:
    """Do the words at different positions of a sentence have different distributions?

    They do if the entropy of the first word is below 0.9 times the entropy of all words.
    """
    findings = []
    for name, corpus in read().items():
        bits = {key: entropy(corpus["positions"][key]) for key in ("1", "last", "all")}
        answer = (
            f"the first word has {bits['1']:.1f} bits of entropy, the last {bits['last']:.1f}, any "
            f"word {bits['all']:.1f}"
        )
        statement = (
            f"{name}: words at the first position are distributed differently from all words"
        )
        numbers = {"first": bits["1"], "last": bits["last"], "all": bits["all"]}
        findings.append(
            finding(
                _SHORT.get(name, name),
                statement,
                answer,
                holds=bits["1"] < 0.9 * bits["all"],
                **numbers,
            )
        )
    return findings


@check("positions.different_words")
def different_words() -> list[CheckFinding]:
    """Do two sentences usually begin with different words?"""
    findings = []
    for name, corpus in read().items():
        different = 1 - alike(corpus["positions"]["1"])
        statement = f"{name}: two sentences usually begin with different words"
        answer = f"in {different:.1%} of pairs"
        findings.append(
            finding(
                _SHORT.get(name, name),
                statement,
                answer,
                holds=different > 0.5,
                different=different,
            )
        )
    return findings


@check("positions.alike")
def first_words() -> list[CheckFinding]:
    """Are two sentences' first words less often the same than any two words?"""
    findings = []
    for name, corpus in read().items():
        first, every = (alike(corpus["positions"][key]) for key in ("1", "all"))
        word, times = corpus["most"]["1"]
        share = times / corpus["sentences"]
        answer = (
            f"two first words are the same in {first:.1%} of pairs, any two words in {every:.1%}; "
            f"{share:.0%} of sentences start with `{word}`"
        )
        statement = (
            f"{name}: first words of different sentences have less in common than any two words"
        )
        findings.append(
            finding(
                _SHORT.get(name, name),
                statement,
                answer,
                holds=first < every,
                first=first,
                all=every,
            )
        )
    return findings
