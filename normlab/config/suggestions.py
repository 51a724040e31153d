"""Suggestions for unknown words."""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from types import MappingProxyType

_MOST = 3  # maximum number of suggestions
_CUTOFFS = (0.8, 0.5)  # fairly similar words are suggested only if no word is very similar
_NO_ALIASES: Mapping[str, str] = MappingProxyType({})
_MOST_LISTED = 12  # maximum number of options in an error


def squeezed(text: str) -> str:
    """Return a text in lower case without spaces, hyphens and underscores."""
    return re.sub(r"[-_\s]", "", text.lower())


def did_you_mean(
    word: str,
    known: Sequence[str],
    *,
    before: str = "",
    aliases: Mapping[str, str] = _NO_ALIASES,
) -> str:
    """Return ` Did you mean ...?` with the most similar words, or "" if none is similar.

    Each word gets the prefix `before`. `aliases` are other names of known words, such as "gpt" for
    `lm`; a word that is similar to one gets the known word.
    """
    names = {**{squeezed(each): each for each in known}, **aliases}
    matches = (get_close_matches(squeezed(word), names, n=_MOST, cutoff=c) for c in _CUTOFFS)
    near = dict.fromkeys(names[each] for each in next(filter(None, matches), []))
    return suggestion([f"{before}{each}" for each in near])


def suggestion(names: Sequence[str]) -> str:
    """Return ` Did you mean ...?` with some words, or "" if there are none."""
    return f" Did you mean {' or '.join(names)}?" if names else ""


def choice_of(known: Sequence[str], listing: str, near: str) -> str:
    """Return the end of an error about an unknown word: similar words (`near`), then all words.

    If there are too many words, the text names the command `listing`, which prints them.
    """
    if len(known) > _MOST_LISTED:
        return f"{'.' if near else ';'}{near} `{listing}` shows all"
    names = ", ".join(known) or "none"
    return f".{near} Choose from {names}" if near else f"; choose from {names}"
