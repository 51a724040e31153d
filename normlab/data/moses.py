"""Moses tokens: the word boundaries of the papers' BLEU, and the way back to plain text.

Decides the conventions of `tokenized` text: Moses rules of the language, HTML-escaped (`&apos;`),
hyphens not split further. Implemented by sacremoses, which takes a third of a second to import: it
is when text is split or joined, not when a run starts on text that is prepared.
"""

from collections.abc import Iterable


def tokenize(lines: Iterable[str], *, lang: str) -> list[str]:
    """Return space-separated, escaped Moses tokens of each line."""
    from sacremoses import MosesTokenizer

    moses = MosesTokenizer(lang=lang)
    return [" ".join(moses.tokenize(line, escape=True)) for line in lines]


def detokenize(lines: Iterable[str], *, lang: str) -> list[str]:
    """Return plain text of lines of Moses tokens, unescaped."""
    from sacremoses import MosesDetokenizer

    moses = MosesDetokenizer(lang=lang)
    return [moses.detokenize(line.split(), unescape=True) for line in lines]
