"""The code that trained a run: its numerics, the user's own norms, the commit, and whether clean.

A run that is resumed, or that starts from another run's weights, may be trained by several codes.
Its checkpoints list all of them, and its record is as clean as the least clean one.
"""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

CHECKOUT = Path(__file__).resolve().parents[2]
_SOURCES = ("normlab", "configs", "pyproject.toml")  # in a checkout, results depend on these paths
MadeBy = tuple[int | str, Mapping[str, str]]
"""The numerics of a run, and the files of the user's own norms with their hashes."""


class Code(NamedTuple):
    """One state of the code; `commit` and `dirty` are None if they are unknown."""

    numerics: int | str
    own_norms: Mapping[str, str]
    commit: str | None
    dirty: bool | None


def checkout_state() -> tuple[str | None, bool | None]:
    """Return the commit, and whether code or configs differ from it; None outside a checkout.

    New files count as differences too, unless git ignores them: a norm that no commit has is
    uncommitted code.
    """
    if not (CHECKOUT / ".git").exists():
        return None, None

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(CHECKOUT), *arguments]
        return subprocess.check_output(command, text=True, timeout=20, stderr=subprocess.DEVNULL)

    try:
        status = git("status", "--porcelain", "--untracked-files=all", "--", *_SOURCES)
        return git("rev-parse", "HEAD").strip(), bool(status.strip())
    except (OSError, subprocess.SubprocessError):
        return None, None


def followed_by(codes: Sequence[Code], code: Code) -> list[Code]:
    """Return the codes of a run that `code` continues; the same code again adds nothing."""
    return [*codes, *([code] if list(codes[-1:]) != [code] else [])]


def joint_code(codes: Sequence[Code]) -> MadeBy:
    """Return the numerics and own norms of a run, several in the order in which they trained it.

    Runs of mixed code, such as numerics "1, then 2", pair only with runs of the same mix.
    """
    numerics = list(dict.fromkeys(code.numerics for code in codes))
    own: dict[str, dict[str, None]] = {}
    for code in codes:
        for name, files in code.own_norms.items():
            own.setdefault(name, {})[files] = None
    mixed = ", then ".join(map(str, numerics))
    return (
        numerics[0] if len(numerics) == 1 else mixed,
        {name: ", then ".join(files) for name, files in sorted(own.items())},
    )


def origin(codes: Sequence[Code]) -> dict[str, Any]:
    """Return what a record's environment says of a run's codes: `commit`, `dirty` and `commits`.

    `commit` is the last one, which also tested the run; `commits` lists all, if there are several.
    Dirty once is dirty, and unknown once is not known to be clean.
    """
    commits = list(dict.fromkeys(str(code.commit) for code in codes))
    states = {code.dirty for code in codes}
    dirty = True if True in states else None if None in states else False
    several = {"commits": commits} if len(commits) > 1 else {}
    return {"commit": codes[-1].commit, "dirty": dirty, **several}
