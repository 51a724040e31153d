"""The built-in corpus: German-English sentence pairs that a small grammar generates."""

from normlab.data.toy.corpus import ToyCorpus

__all__ = ["ToyCorpus"]
