"""The built-in corpus: German sentences of a small grammar, and their English translations.

The grammar has what makes German word order and agreement hard: the verb second in a main clause
and last after "weil", "wenn", "obwohl" and "bevor"; articles and adjectives that agree with the
gender and the case of a noun, in the weak ("der alte Hut") and the mixed pattern ("ein alter Hut").
The English is one fixed translation. The words are in `lexicon.yaml`.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.resources import files
from random import Random
from typing import Any, Literal, NamedTuple, TypeVar

import yaml

from normlab.data.corpus import Corpus, Form, ParallelText
from normlab.data.documents import Document, DocumentCorpus

VERSION = "toy/2"
"""Of the text: raise it when another text comes from the same settings (1 was an older grammar)."""

LONGEST = 45
"""German words after which a sentence gets no further clause."""

Gender = Literal["masculine", "feminine", "neuter"]
Case = Literal["nominative", "accusative", "dative"]
T = TypeVar("T")

# By case, for masculine, feminine and neuter. "weak" follows the definite article, "mixed" the
# indefinite one.
GENDERS: tuple[Gender, ...] = ("masculine", "feminine", "neuter")
DEFINITE = {
    "nominative": ("der", "die", "das"),
    "accusative": ("den", "die", "das"),
    "dative": ("dem", "der", "dem"),
}
INDEFINITE = {
    "nominative": ("ein", "eine", "ein"),
    "accusative": ("einen", "eine", "ein"),
    "dative": ("einem", "einer", "einem"),
}
WEAK = {
    "nominative": ("e", "e", "e"),
    "accusative": ("en", "e", "e"),
    "dative": ("en", "en", "en"),
}
MIXED = {
    "nominative": ("er", "e", "es"),
    "accusative": ("en", "e", "es"),
    "dative": ("en", "en", "en"),
}


class Word(NamedTuple):
    """A word or a fixed phrase, and its translation."""

    german: str
    english: str


class Noun(NamedTuple):
    """A noun in the singular."""

    german: str
    english: str
    gender: Gender


class Verb(NamedTuple):
    """A verb in the third person of the present tense; `case` is that of its object, if any."""

    german: str
    english: str
    case: Literal["accusative", "dative", "intransitive"]


class Said(NamedTuple):
    """The same in German and in English, word by word."""

    german: tuple[str, ...] = ()
    english: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lexicon:
    """The words that sentences are made of."""

    living: Sequence[Noun]
    things: Sequence[Noun]
    adjectives: Sequence[Word]
    verbs: Sequence[Verb]
    times: Sequence[Word]
    places: Sequence[Word]
    conjunctions: Sequence[Word]


@cache
def lexicon() -> Lexicon:
    """Read the words of the package."""
    table: dict[str, Any] = yaml.safe_load(_lexicon_text())
    nouns: dict[str, Any] = {
        kind: [Noun(de, en, gender) for gender in GENDERS for de, en in table[kind][gender].items()]
        for kind in ("living", "things")
    }
    words: dict[str, Any] = {
        kind: [Word(*pair) for pair in table[kind].items()]
        for kind in ("adjectives", "times", "places", "conjunctions")
    }
    verbs = [Verb(de, en, case) for case, x in table["verbs"].items() for de, en in x.items()]
    return Lexicon(**nouns, **words, verbs=verbs)


def _lexicon_text() -> str:
    return files("normlab.data").joinpath("lexicon.yaml").read_text("utf-8")


class Grammar:
    """Draws sentences.

    Only `Random.random` is used: Python promises the same numbers for a seed in every version, and
    does not promise those of `choice` or `sample`.
    """

    def __init__(self, words: Lexicon, random: Random) -> None:
        self._words, self._draw = words, random.random

    def pick(self, options: Sequence[T]) -> T:
        """Draw one of several options."""
        return options[int(self._draw() * len(options))]

    def sentence(self) -> tuple[str, str]:
        """Draw a sentence: the German and the English, capitalized and with a full stop."""
        german, english = (list(side) for side in self._clause(verb_last=False))
        while self._draw() < 0.45 and len(german) < LONGEST:
            if self._draw() < 0.5:
                conjunction = self.pick(self._words.conjunctions)
                clause = self._clause(verb_last=True)
                german[-1] += ","
            else:
                conjunction = Word("und", "and")
                clause = self._clause(verb_last=False)
            german += [conjunction.german, *clause.german]
            english += [conjunction.english, *clause.english]
        first, second = (" ".join(words) for words in (german, english))
        return f"{first[0].upper()}{first[1:]}.", f"{second[0].upper()}{second[1:]}."

    def _clause(self, *, verb_last: bool) -> Said:
        subject = self._phrase(self._words.living, "nominative")
        time = self._maybe(self._words.times, 0.5)
        place = self._maybe(self._words.places, 0.4)
        verb = self.pick(self._words.verbs)
        found = Said()
        if verb.case == "accusative":
            found = self._phrase((*self._words.living, *self._words.things), "accusative")
        elif verb.case == "dative":
            found = self._phrase(self._words.living, "dative")
        middle = (*found.german, *place.german)
        if verb_last:
            german = (*subject.german, *time.german, *middle, verb.german)
        elif time.german and self._draw() < 0.6:
            german = (*time.german, verb.german, *subject.german, *middle)
        else:
            german = (*subject.german, verb.german, *time.german, *middle)
        english = (*subject.english, verb.english, *found.english, *place.english, *time.english)
        return Said(german, english)

    def _maybe(self, words: Sequence[Word], chance: float) -> Said:
        if self._draw() >= chance:
            return Said()
        word = self.pick(words)
        return Said((word.german,), (word.english,))

    def _phrase(self, nouns: Sequence[Noun], case: Case) -> Said:
        """Draw a noun with its article and no, one or two adjectives."""
        noun = self.pick(nouns)
        column = GENDERS.index(noun.gender)
        definite = self._draw() < 0.6
        adjectives: list[Word] = []
        for _ in range(self.pick((0, 0, 1, 1, 2))):
            adjectives.append(self.pick([a for a in self._words.adjectives if a not in adjectives]))
        ending = (WEAK if definite else MIXED)[case][column]
        article = (DEFINITE if definite else INDEFINITE)[case][column]
        english = (*(adjective.english for adjective in adjectives), noun.english)
        indefinite = "an" if english[0][0] in "aeiou" else "a"
        return Said(
            (article, *(adjective.german + ending for adjective in adjectives), noun.german),
            ("the" if definite else indefinite, *english),
        )


class _Generated:
    """What the two corpora share: sizes by split and a seed, which decide the text."""

    name = "toy"
    licence = "generated by normlab, free of rights"

    def __init__(self, *, size: int, valid_size: int = 200, test_size: int = 200, seed: int = 1):
        self.sizes = {"train": size, "valid": valid_size, "test": test_size}
        self.seed = seed
        for split, count in self.sizes.items():
            if count < 1:
                key = "size" if split == "train" else f"{split}_size"
                raise ValueError(f"task.corpus.{key}={count}: a split needs 1 or more")

    def _random(self, *seeds: str) -> Random:
        return Random(" ".join(["normlab", VERSION, str(self.seed), *seeds]))

    def key(self) -> str:
        settings = (type(self).__name__, VERSION, self.sizes, self.seed, _lexicon_text())
        return f"toy-{hashlib.sha256(repr(settings).encode()).hexdigest()}"


class ToyCorpus(_Generated, Corpus):
    """Sentence pairs of the grammar; no sentence occurs twice.

    `size` is the number of training pairs, `valid_size` and `test_size` those of the other splits,
    `seed` is what the text is drawn from. Valid and test do not depend on `size`.
    """

    label = f"{VERSION} (generated German-English)"
    languages = ("de", "en")
    form: Form = "raw"

    def splits(self) -> dict[str, ParallelText]:
        return self._splits

    @cached_property
    def _splits(self) -> dict[str, ParallelText]:
        taken: set[str] = set()
        texts: dict[str, ParallelText] = {}
        for split in ("test", "valid", "train"):  # train last, so that its size moves no other
            grammar = Grammar(lexicon(), self._random(split))
            pairs: list[tuple[str, str]] = []
            while len(pairs) < self.sizes[split]:
                pair = grammar.sentence()
                if pair[0] not in taken:
                    taken.add(pair[0])
                    pairs.append(pair)
            german, english = (list(side) for side in zip(*pairs, strict=True))
            origins = (f"toy {split} (de)", f"toy {split} (en)")
            texts[split] = ParallelText(german, english, origins=origins)
        return {split: texts[split] for split in self.sizes}


class ToyDocuments(_Generated, DocumentCorpus):
    """English documents of the grammar, for language models.

    Each document has a cast of its own: two living beings, two things, two adjectives, a time and
    two places, in sentences of one clause or more. So a sentence that shares the cast of another
    one follows it, and next-sentence prediction can be learned. Sizes count documents.
    """

    label = f"{VERSION} (generated English documents)"
    language = "en"

    def splits(self) -> dict[str, list[Document]]:
        return {split: list(self._documents(split)) for split in self.sizes}

    def _documents(self, split: str) -> Iterator[Document]:
        words, random = lexicon(), self._random(split, "documents")
        counts = {"living": 2, "things": 2, "adjectives": 2, "times": 1, "places": 2}
        for number in range(1, self.sizes[split] + 1):
            draw = Grammar(words, random)
            cast: dict[str, list[Any]] = {}
            for name, count in counts.items():
                chosen = cast.setdefault(name, [])
                while len(chosen) < count:
                    chosen.append(draw.pick([w for w in getattr(words, name) if w not in chosen]))
            grammar = Grammar(replace(words, **cast), random)
            sentences = [grammar.sentence()[1] for _ in range(draw.pick(range(4, 13)))]
            yield Document(f"toy {split}, document {number}", tuple(sentences))
