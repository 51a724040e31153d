"""Reads the comments in `configs/`, which explain options and keys to people.

There are two conventions:

- The comment at the top of an option's file describes the option. Lists show only its first
  sentence. Lines with a command (`normlab train ...`) or `@package` are left out.
- A comment after `key: value` says what the key means.

Comments are only displayed, in lists, on pages and in the reference. No other code reads them, and
no value of a run comes from a comment.
"""

import re
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

_COMMAND = re.compile(r"[`$ ]*(@package|normlab|torchrun|python|bash)\s")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_KEY = re.compile(r"(?P<indent> *)(?P<name>\w+):(?: +(?P<value>[^#]*?))?(?: +# (?P<comment>.*))?")


class Description(NamedTuple):
    """The description of an option: its first sentence, and the whole text."""

    summary: str
    details: str


class ExplainedKey(NamedTuple):
    """A key's value as written in a file, and the comment after it. Either may be empty."""

    value: str
    comment: str


def description_in(path: Path) -> Description:
    """Return the description at the top of an option's file."""
    lines = takewhile(lambda line: line.startswith("#"), path.read_text("utf-8").splitlines())
    texts = (line.lstrip("#").strip() for line in lines)
    details = "\n".join(text for text in texts if not _COMMAND.match(text)).strip()
    paragraph = details.split("\n\n")[0].replace("\n", " ")
    return Description(_SENTENCE_END.split(paragraph)[0], details)


def explained_keys(path: Path) -> dict[str, ExplainedKey]:
    """Return the value and comment of each key in a file, by dotted key of at most two parts."""
    keys: dict[str, ExplainedKey] = {}
    top = ""
    for line in path.read_text("utf-8").splitlines():
        if (match := _KEY.fullmatch(line)) is not None:
            top = top if match["indent"] else match["name"]
            name = f"{top}.{match['name']}" if match["indent"] else top
            keys[name] = ExplainedKey(match["value"] or "", match["comment"] or "")
    return keys
