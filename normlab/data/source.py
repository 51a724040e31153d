"""The base class of everything that data are read from: corpora and sources of images."""

from abc import ABC
from collections.abc import Mapping
from pathlib import Path


class DataSource(ABC):  # noqa: B024 - what a source must give depends on its kind
    """What a task reads its data from."""

    def files(self) -> Mapping[str, Path] | None:
        """Return the files that the data are read from, by name; None if only reading them tells.

        {} if the config alone decides what the data are: made by a program, or published under the
        name in the config. Raises UserError if a file is missing.
        """
        return None
