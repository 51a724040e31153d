"""Decides when two runs were made by the same code: a hash of what can move a result."""

from __future__ import annotations

import hashlib
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
# What only shows, lists or describes results cannot change one.
_CANNOT_MOVE_A_RESULT = frozenset(
    {
        *("commands", "reports", "claims", "checks", "health", "explain", "bench"),
        *("cli.py", "registry.py", "studies.py", "study_file.py", "sweep.py"),
    }
)
_LENGTH = 10


def code_hash(package: Path = _PACKAGE) -> str:
    """Hash the package's sources that build, train and score: 10 hex digits of SHA-256."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        relative = path.relative_to(package)
        if relative.parts[0] in _CANNOT_MOVE_A_RESULT:
            continue
        digest.update(f"{relative.as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:_LENGTH]
