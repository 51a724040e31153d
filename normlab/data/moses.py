"""Moses tokens: the word boundaries of the papers' BLEU, and the way back to plain text.

Decides the conventions of `tokenized` text: Moses rules of the language, HTML-escaped (`&apos;`),
hyphens not split further. Implemented by sacremoses.
"""

from collections.abc import Iterable

from sacremoses import MosesDetokenizer, MosesTokenizer


def tokenize(lines: Iterable[str], *, lang: str) -> list[str]:
    """Return space-separated, escaped Moses tokens of each line."""
    moses = MosesTokenizer(lang=lang)
    return [" ".join(moses.tokenize(line, escape=True)) for line in lines]


def detokenize(lines: Iterable[str], *, lang: str) -> list[str]:
    """Return plain text of lines of Moses tokens, unescaped."""
    moses = MosesDetokenizer(lang=lang)
    return [moses.detokenize(line.split(), unescape=True) for line in lines]
