"""Small labelled data sets that come with normlab, in `files/`: digits, wine and cancer.

All three are from the UCI Machine Learning Repository, under CC BY 4.0:

- `digits`: Alpaydin and Kaynak 1998, "Optical Recognition of Handwritten Digits", the test set of
  1,797 images of 8 x 8 pixels with values from 0 to 16 (doi:10.24432/C50P49);
- `wine`: Aeberhard and Forina 1992, "Wine", 13 measurements of 178 wines from three cultivars, in
  different units: proline is about 750, hue about 1 (doi:10.24432/C5PC7J);
- `cancer`: Wolberg et al. 1995, "Breast Cancer Wisconsin (Diagnostic)", 30 measurements of 569 cell
  nuclei, from 0 to 4,254 (doi:10.24432/C5DW2B).
"""

import csv
import gzip
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int

_FOLDER = Path(__file__).parent / "files"


class BundledData(NamedTuple):
    """Rows of features as published, their class indices, and names of features and classes."""

    features: Float32[np.ndarray, "N F"]
    labels: Int[np.ndarray, "N"]
    names: tuple[str, ...]
    classes: tuple[str, ...]


def read_bundled(name: str) -> BundledData:
    """Return the data of a file in `files/`, with classes numbered in order of their names."""
    with gzip.open(_FOLDER / f"{name}.csv.gz", "rt", encoding="ascii") as lines:
        header, *rows = csv.reader(lines)
    features = np.array([row[:-1] for row in rows], np.float32)
    classes, labels = np.unique([row[-1] for row in rows], return_inverse=True)
    return BundledData(features, labels, tuple(header[:-1]), tuple(map(str, classes)))
