"""The documents of each split."""


def splits_of(corpus):
    """Return the documents of each split."""
    found = {}
    for split, document in corpus.documents():
        found.setdefault(split, []).append(tuple(document))
    return found
