"""What the processes of a run must have alike before it begins: folder, code and data."""

import hashlib
import json
from pathlib import Path

from normlab import distributed
from normlab.records.store import RECORD_FILE


def check_same_place(folder: Path, code: str, state: Path) -> None:
    """Raise ValueError on all ranks unless all read from one folder and run the same code.

    `state` is the checkpoint that the run would go on from.
    """
    places = {"lock": folder / ".lock", "record": folder / RECORD_FILE, "state": state}
    distributed.check_agreement(
        {f"the {name} in {folder}": _size(path) for name, path in places.items()},
        cure="runs_dir must be a folder that all ranks share",
    )
    distributed.check_agreement({"the code": code}, cure="install the same version for all ranks")


def check_same_data(checksums: object) -> None:
    """Raise ValueError on all ranks unless all have read the same data."""
    digest = hashlib.sha256(json.dumps(checksums, sort_keys=True).encode()).hexdigest()[:10]
    distributed.check_agreement(
        {"the text of data_dir": digest}, cure="give all ranks the same data"
    )


def _size(path: Path) -> str:
    """Describe a file, so that two that differ are told apart, as a rule."""
    return f"{path.stat().st_size} bytes long" if path.exists() else "missing"
