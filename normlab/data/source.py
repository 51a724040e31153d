"""The base class of all data sources: corpora, and sources of images and tables."""

from abc import ABC
from collections.abc import Mapping
from pathlib import Path


class DataSource(ABC):  # noqa: B024 - what a source must provide depends on its kind
    """A source that a task reads its data from."""

    def files(self) -> Mapping[str, Path] | None:
        """Return the files that the data are read from, keyed by name.

        Return None if the files are unknown until the data are read, and {} if the config alone
        determines the data, because a program generates them or they are published under the name
        in the config. Raises UserError if a file is missing.
        """
        return None

    def label_here(self) -> str | None:
        """Return the label of the data if they depend on this machine's software, otherwise None.

        A run whose record has a different label was trained on different data.
        """
        return None
