"""The built-in corpus of German sentences from a small grammar, and their English translations.

The grammar covers what is hard in German word order and agreement: the verb comes second in a main
clause and last after "weil", "wenn", "obwohl" and "bevor"; articles and adjectives agree with the
gender and case of their noun, in the weak and the mixed pattern. The words are in `lexicon.yaml`.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import yaml

from normlab.data.corpus import REQUIRED, Corpus, Form, ParallelText

VERSION = 2  # increase it when the same settings generate different text
NAME = f"toy/{VERSION}"
LONGEST = 45  # a sentence with at least this many German words gets no further clause
GENDERS = ("masculine", "feminine", "neuter")
# By case, for the three genders: definite articles and the adjective endings after them ("weak"),
# then indefinite articles and the endings after them ("mixed").
FORMS = {
    "nominative": ("der die das", "e e e", "ein eine ein", "er e es"),
    "accusative": ("den die das", "en e e", "einen eine ein", "en e es"),
    "dative": ("dem der dem", "en en en", "einem einer einem", "en en en"),
}


class Word(NamedTuple):
    """A word or a fixed phrase, and its translation.

    `kind` is a noun's gender, or the case of a verb's object ("intransitive" if it has none).
    """

    german: str
    english: str
    kind: str = ""


class Phrase(NamedTuple):
    """A phrase or clause as German and English words."""

    german: tuple[str, ...] = ()
    english: tuple[str, ...] = ()


def _lexicon_text() -> str:
    return files("normlab.data").joinpath("lexicon.yaml").read_text("utf-8")


@cache
def lexicon() -> dict[str, list[Word]]:
    """Return the words of the lexicon by part of speech."""
    words_by_kind: dict[str, list[Word]] = {}
    for name, words in yaml.safe_load(_lexicon_text()).items():
        kinds = words if name in ("living", "things", "verbs") else {"": words}
        words_by_kind[name] = [
            Word(de, en, kind) for kind, x in kinds.items() for de, en in x.items()
        ]
    return words_by_kind


class Grammar:
    """A generator of sentence pairs.

    It draws only with `Random.random`, which gives the same numbers for a seed in every version of
    Python; `choice` and `sample` may not.
    """

    def __init__(self, random: Random) -> None:
        self._words, self._draw = lexicon(), random.random

    def pick(self, options: Sequence[Any]) -> Any:
        """Draw one of several options."""
        return options[int(self._draw() * len(options))]

    def sentence(self) -> tuple[str, str]:
        """Draw a sentence in German and English, each capitalized and with a full stop."""
        german, english = map(list, self._clause(verb_last=False))
        while self._draw() < 0.45 and len(german) < LONGEST:
            if self._draw() < 0.5:
                conjunction = self.pick(self._words["conjunctions"])
                clause = self._clause(verb_last=True)
                german[-1] += ","
            else:
                conjunction, clause = Word("und", "and"), self._clause(verb_last=False)
            german += [conjunction.german, *clause.german]
            english += [conjunction.english, *clause.english]
        first, second = (" ".join(words) for words in (german, english))
        return f"{first[0].upper()}{first[1:]}.", f"{second[0].upper()}{second[1:]}."

    def _clause(self, *, verb_last: bool) -> Phrase:
        living, things = self._words["living"], self._words["things"]
        subject = self._phrase(living, "nominative")
        time = self._maybe("times", 0.5)
        place = self._maybe("places", 0.4)
        verb = self.pick(self._words["verbs"])
        object_phrase = Phrase()
        if verb.kind != "intransitive":
            nouns = (*living, *things) if verb.kind == "accusative" else living
            object_phrase = self._phrase(nouns, verb.kind)
        middle = (*object_phrase.german, *place.german)
        if verb_last:
            german = (*subject.german, *time.german, *middle, verb.german)
        elif time.german and self._draw() < 0.6:
            german = (*time.german, verb.german, *subject.german, *middle)
        else:
            german = (*subject.german, verb.german, *time.german, *middle)
        english = (
            *subject.english,
            verb.english,
            *object_phrase.english,
            *place.english,
            *time.english,
        )
        return Phrase(german, english)

    def _maybe(self, name: str, chance: float) -> Phrase:
        if self._draw() >= chance:
            return Phrase()
        word = self.pick(self._words[name])
        return Phrase((word.german,), (word.english,))

    def _phrase(self, nouns: Sequence[Word], case: str) -> Phrase:
        """Draw a noun with its article and zero to two adjectives."""
        noun = self.pick(nouns)
        definite = self._draw() < 0.6
        adjectives: list[Word] = []
        for _ in range(self.pick((0, 0, 1, 1, 2))):
            others = [word for word in self._words["adjectives"] if word not in adjectives]
            adjectives.append(self.pick(others))
        forms = FORMS[case][:2] if definite else FORMS[case][2:]
        article, ending = (row.split()[GENDERS.index(noun.kind)] for row in forms)
        english = (*(adjective.english for adjective in adjectives), noun.english)
        indefinite = "an" if english[0][0] in "aeiou" else "a"
        return Phrase(
            (article, *(adjective.german + ending for adjective in adjectives), noun.german),
            ("the" if definite else indefinite, *english),
        )


def version_of(data: Mapping[str, Any]) -> int | None:
    """Return the version of the toy corpus that a record's `data` describe, or None for other data.

    The label begins with the name and the version, as in "toy/2 (...)"; version 1 has only "toy".
    """
    label = re.match(r"toy(?:/(\d+))? \(", str(data.get("label")))
    return int(label[1] or 1) if label and data.get("source") == ToyCorpus.name else None


class ToyCorpus(Corpus):
    """Sentence pairs drawn from the grammar, without duplicate sentences.

    `size` is the number of training pairs, and `seed` decides the text. Valid and test do not
    depend on `size`.
    """

    name = "toy"
    label = f"{NAME} (generated German-English)"
    licence = "generated by normlab, free of rights"
    languages = ("de", "en")
    form: Form = "raw"

    def __init__(self, *, size: int, valid_size: int = 200, test_size: int = 200, seed: int = 1):
        # Train is drawn last, so that its size does not change the other splits.
        self.sizes = {"test": test_size, "valid": valid_size, "train": size}
        self.seed = seed

    def files(self) -> Mapping[str, Path]:
        return {}

    def key(self) -> str:
        return f"{NAME} {self.sizes} {self.seed} {_lexicon_text()}"

    def read(self) -> dict[str, ParallelText]:
        taken: dict[str, str] = {}
        texts: dict[str, ParallelText] = {}
        for split, size in self.sizes.items():
            random = Random(f"normlab {NAME} {self.seed} {split}")
            grammar, before = Grammar(random), len(taken)
            while len(taken) < before + size:
                taken.setdefault(*grammar.sentence())
            texts[split] = ParallelText(list(taken)[before:], list(taken.values())[before:])
        return {split: texts[split] for split in REQUIRED}
