"""A translation task over a few dozen sentences in memory."""

import itertools

from normlab.data.corpus import Corpus, ParallelText
from normlab.models.decoding import SearchSettings
from normlab.tasks.translation import Translation

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

    def splits(self):
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
