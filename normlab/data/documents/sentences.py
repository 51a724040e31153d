"""Sentences of a raw paragraph, by the rules of Wikimedia's `sentencex`: no model, no download.

Decides that white space ends every sentence: a name such as `os.Path` holds no boundary.
"""

from importlib.metadata import version


def split_sentences(paragraph: str, *, language: str) -> list[str]:
    """Cut a paragraph, whose line breaks are spaces, into sentences without blanks at their ends.

    `language` is an ISO 639 code; one that the library has no rules for is cut by those of a
    related language or of English.
    """
    # Not needed where sentences are a line each; a compiled module without types.
    from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue]

    sentences: list[str] = []
    begun = ""
    for piece in segment(language, " ".join(paragraph.split())):
        begun += piece
        if begun[-1:].isspace():
            sentences.append(begun.strip())
            begun = ""
    return [sentence for sentence in [*sentences, begun.strip()] if sentence]


def splitter() -> str:
    """Return name and version of the library that decides where sentences end."""
    return f"sentencex {version('sentencex')}"
