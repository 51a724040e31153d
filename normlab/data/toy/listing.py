"""How the word lists of the grammar are written: words in running text."""


def listing(text: str) -> tuple[str, ...]:
    """Split a listing into words at blanks and line ends."""
    return tuple(text.split())
