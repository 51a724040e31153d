"""Running a study from a clone at one commit, so that the checkout may change meanwhile."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from normlab.config.registry import CONFIG_DIR


def continue_in(clone: Path, argv: Sequence[str]) -> None:
    """Make the clone if there is none, and replace this process by `normlab ARGV` of its code.

    Returns if the running code is the clone's. Relative folders in `argv` keep their meaning.
    Raises ValueError for changes that are not committed, which a clone would not have, and for a
    folder that is no clone.
    """
    if clone.resolve() == CONFIG_DIR.parent.resolve():
        return
    commit = frozen(clone, CONFIG_DIR.parent)
    print(f"running the clone {clone} at commit {commit}", file=sys.stderr, flush=True)
    # Safe: otherwise the current folder would come before the clone.
    places = {"PYTHONPATH": str(clone.resolve()), "PYTHONSAFEPATH": "1"}
    os.execve(sys.executable, [sys.executable, "-m", "normlab", *argv], {**os.environ, **places})


def frozen(clone: Path, checkout: Path) -> str:
    """Return the commit of a clone, which is made of the checkout's commit if it is missing."""
    if not clone.exists():
        if not (checkout / ".git").exists():
            raise ValueError(f"--clone: {checkout} is no git checkout, which could be cloned")
        if uncommitted() is not None:
            raise ValueError("--clone: code or configs have changes that are not committed: commit")
        commit = _git(checkout, "rev-parse", "HEAD")
        _git(checkout, "clone", "--quiet", "--no-checkout", str(checkout), str(clone.resolve()))
        _git(clone, "checkout", "--quiet", "--detach", commit)
    if not (clone / "normlab" / "__main__.py").is_file():
        raise ValueError(f"--clone: {clone} is there, and is no clone of normlab: name another")
    return _git(clone, "rev-parse", "HEAD")


def uncommitted() -> str | None:
    """Say that runs will decide nothing because code or configs are not committed, else None."""
    command = ["git", "-C", str(CONFIG_DIR.parent), "status", "--porcelain"]
    command += ["--untracked-files=no", "--", "normlab", "configs"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return None
    if done.returncode or not done.stdout.strip():
        return None
    return "code or configs have changes that are not committed: these runs will decide nothing"


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, errors="replace"
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise ValueError(f"--clone: git {arguments[0]}: {lines[-1]}")
    return done.stdout.strip()
