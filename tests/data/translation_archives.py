"""Published archives of sentence pairs, in small."""

from normlab.data.iwslt import Iwslt14
from normlab.data.multi30k import Multi30k


def corpus(data_dir, **values):
    defaults = {
        "source_language": "de",
        "target_language": "en",
        "train_from": "train",
        "prepared": "auto",
        "download": "archive",
    }
    return Iwslt14(data_dir=None if data_dir is None else str(data_dir), **{**defaults, **values})


def captions(data_dir, **values):
    languages = {"source_language": "de", "target_language": "en"}
    return Multi30k(data_dir=None if data_dir is None else str(data_dir), **{**languages, **values})
