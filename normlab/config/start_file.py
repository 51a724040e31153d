"""The file of a run that another run can start from, named by its folder and its checksum."""

import hashlib
from pathlib import Path

FILE = "checkpoints/last.pt"


def settled(folder: str) -> dict[str, str]:
    """Return what a config says of a run to start from; ValueError where there is no such run."""
    path = Path(folder) / FILE
    if not path.is_file():
        raise ValueError(f"start_from={folder}: no folder of a trained run, which has {FILE}")
    return {"run_dir": folder, "sha256": checksum(path)}


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
