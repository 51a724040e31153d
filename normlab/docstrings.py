"""The summary of a docstring, which some commands print."""

import inspect


def summary(documented: object) -> str:
    """Return the first paragraph of an object's docstring on one line, or "" if it has none."""
    paragraph, _, _ = (inspect.getdoc(documented) or "").partition("\n\n")
    return " ".join(paragraph.split())
