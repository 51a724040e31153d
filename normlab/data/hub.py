"""Loads data sets from the Hugging Face Hub, or from a local folder in one of its formats."""

import logging
from typing import Any

from normlab.errors import UserError


def load_tables(path: str, config: str | None = None, *, files: str) -> Any:
    """Load the tables of a data set from the Hugging Face Hub or a local folder, keyed by split.

    Raises UserError if that fails. The error uses `files`, a phrase that says what data_dir must
    contain.
    """
    import datasets  # slow to import, and not needed for plain files

    hub = logging.getLogger("huggingface_hub")
    former = hub.level
    hub.setLevel(logging.ERROR)  # offline, the library warns about each retry
    try:
        return datasets.load_dataset(path, config)
    except Exception as error:
        cause = " ".join(str(error).split())[:200]
        raise UserError(
            f"cannot load the data set {path} ({type(error).__name__}: {cause}); set data_dir="
            f"FOLDER to a folder with {files} (task=toy and task/corpus=pydoc need no data)"
        ) from error
    finally:
        hub.setLevel(former)


def fingerprint_of(table: Any) -> str:
    """Return the hash that `datasets` caches a table under; it changes whenever the rows change.

    The attribute is private, but nothing public identifies the rows of a table without reading all
    of them.
    """
    return table._fingerprint
