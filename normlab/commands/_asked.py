"""Since which commit the parts of a claim are asked as they are now, and what was known then.

The pages of the ledger do not name it: they are written before the commit that holds them, and have
to be the same in a copy without history.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from normlab.records.store import RECORD_FILE

UNCOMMITTED = "not committed"


def asked_since(path: Path) -> dict[str, str]:
    """Return by the name of a part the commit, and its day, that wrote its primary endpoint.

    That is the oldest one from which on the claim's file has had this endpoint. Nothing where there
    is no git, or not the whole history.
    """
    if _git(path, "rev-parse", "--is-shallow-repository") != "false":
        return {}
    commits = _git(path, "log", "--format=%h %cs", "--", path.name)
    if not commits:
        return {}
    now = _endpoints(path.read_text("utf-8"))
    since = dict.fromkeys(now, UNCOMMITTED)
    open_parts = set(now)
    for line in commits.splitlines():
        commit, _, day = line.partition(" ")
        then = _endpoints(_git(path, "show", f"{commit}:./{path.name}") or "")
        open_parts = {name for name in open_parts if then.get(name) == now[name]}
        if not open_parts:
            break
        since |= dict.fromkeys(open_parts, f"{commit}, {day}")
    return since


def known_before(path: Path, since: str, folders: Sequence[str]) -> int:
    """Count the runs that were published before the commit `since`, wherever they lay then.

    `folders` are those of the runs, `EXPERIMENT/seedN` below any other, `path` is that of the
    claim's file, `since` as `asked_since` has it.
    """
    commit = since.partition(",")[0]
    if not folders or commit in ("", UNCOMMITTED):
        return 0
    listed = _git(path, "ls-tree", "-r", "--full-tree", "--name-only", f"{commit}^") or ""
    files = map(PurePosixPath, listed.splitlines())
    before = {file.parent.parts[-2:] for file in files if file.name == RECORD_FILE}
    return sum(PurePosixPath(folder).parts[-2:] in before for folder in folders)


def _endpoints(text: str) -> dict[str, Any]:
    """Return the primary endpoint of each part of a claim's file; nothing for another file."""
    try:
        content = yaml.safe_load(text)
        return {part["name"]: part["endpoint"] for part in content["parts"]}
    except (yaml.YAMLError, KeyError, TypeError):
        return {}


def _git(path: Path, *arguments: str) -> str | None:
    """Return what git says in the folder of a file; None where it fails, or is not there."""
    command = ["git", "-C", str(path.parent), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    except OSError:
        return None
    return None if done.returncode else done.stdout.strip()
