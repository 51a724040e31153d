"""The summary of a docstring, which some commands print."""

import inspect


def summary(documented: object) -> str:
    """Return the first paragraph of a docstring (the summary of PEP 257) in one line, or ""."""
    paragraph, _, _ = (inspect.getdoc(documented) or "").partition("\n\n")
    return " ".join(paragraph.split())
