"""Small texts in memory, and small models for them."""

import itertools
import random

from normlab.data.corpus import Corpus, ParallelText
from normlab.data.documents import DocumentCorpus
from normlab.models.decoding import SearchSettings
from normlab.models.layers import initialize
from normlab.models.text import TextArchitecture
from normlab.tasks.translation import Translation
from tests.models.small import norms, placement, unsettle

_NOUNS = [("Hund", "dog"), ("Baum", "tree"), ("Mann", "man"), ("Tisch", "table"), ("Tag", "day")]
_VERBS = [("sieht", "sees"), ("malt", "paints"), ("kennt", "knows")]
_ENDS = [("", ""), (" heute", " today"), (" heute in der Stadt", " today in the town")]


def _pairs():
    for a, verb, b, end in itertools.product(_NOUNS, _VERBS, _NOUNS, _ENDS):
        if a != b:
            german = f"der {a[0]} {verb[0]} den {b[0]}{end[0]} ."
            yield german, f"the {a[1]} {verb[1]} the {b[1]}{end[1]} ."


class SmallCorpus(Corpus):
    """180 sentence pairs: 140 to train on, 20 to validate, 20 to test."""

    name, label, licence = "small", "small", "free"
    languages = ("de", "en")
    form = "raw"

    def read(self):
        pairs = sorted(_pairs(), key=lambda pair: pair[0][::-1])
        ends = {"train": pairs[40:], "valid": pairs[:40:2], "test": pairs[1:40:2]}
        return {
            split: ParallelText([a for a, _ in part], [b for _, b in part])
            for split, part in ends.items()
        }


def translation(**changes):
    search = SearchSettings(beam=1, length_offset=5)
    values = {
        "vocab_size": 60,
        "joint_vocabulary": True,
        "max_length": 64,
        "batch_size": 8,
        "max_tokens": None,
        "batching": "bucket",
        "eval_batch_size": 6,
        "label_smoothing": 0.1,
        "valid_search": search,
        "test_search": search,
    }
    return Translation(corpus=SmallCorpus(), **{**values, **changes})


WORDS = ["lantern", "river", "walking", "walked", "talks", "blue", "seven", "quickly", "a", "the"]
SIZES = {"test": 40, "test_odd": 12, "valid": 40, "train": 150}


class SmallDocuments(DocumentCorpus):
    """Documents of one to seven sentences of random words."""

    name = label = "small"
    licence, language = "free", "en"

    def documents(self):
        rng = random.Random(0)

        def sentence():
            return " ".join(rng.choices(WORDS, k=rng.randint(2, 7))) + "."

        for split, count in SIZES.items():
            for _ in range(count):
                yield split, [sentence() for _ in range(rng.randint(1, 7))]

    def key(self):
        return self.name


def text_model(task, norm="ln", place="pre", norm_values=None, **changes):
    values = {
        "dim": 16,
        "ffn_dim": 24,
        "num_heads": 2,
        "num_layers": 1,
        "activation": "gelu",
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "positions": "learned",
        "max_positions": 40,
        "scale_embeddings": False,
    }
    arch = TextArchitecture(**{**values, **changes})
    model = arch.build(task.spec(), placement(place), norms(norm, **(norm_values or {})))
    initialize(model, 1)
    unsettle(model, 1)
    return model.double().eval()


def values_of(scores):
    return {name: score.value for name, score in scores.items()}
