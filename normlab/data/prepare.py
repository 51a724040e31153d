"""Functions that prepare any corpus: caching, checks, and the description in the record."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from normlab.data.cache import cache_key, cached_folder
from normlab.data.corpus import REQUIRED, Source
from normlab.errors import UserError

_DESCRIPTION = "description.json"


def cached_preparation(
    corpus: Source, settings: Mapping[str, object], build: Callable[[Path], dict[str, Any]]
) -> tuple[Path, dict[str, Any]]:
    """Return the folder of prepared data and its description, calling `build` if not cached."""
    content = {"content": corpus.key(), "tokenizers": tokenizers.__version__}
    name = f"{corpus.name}-{cache_key({**content, **settings})}"

    def fill(folder: Path) -> None:
        description = json.dumps(build(folder), indent=1)
        (folder / _DESCRIPTION).write_text(description, "utf-8")

    folder = cached_folder(name, fill)
    return folder, json.loads((folder / _DESCRIPTION).read_text("utf-8"))


def describe_corpus(
    corpus: Source, by_split: Mapping[str, Mapping[str, Any]], **values: Any
) -> dict[str, Any]:
    """Return the record's description of the data: overall values, and then each value by split."""
    label = corpus.label.encode(errors="replace").decode()  # a folder's name may not be UTF-8
    origin = {"source": corpus.name, "label": label, "licence": corpus.licence}
    names = by_split["train"]
    tables = {name: {split: x[name] for split, x in by_split.items()} for name in names}
    return {**origin, **values, **tables}


def length_statistics(lengths: np.ndarray) -> dict[str, float]:
    """Return the mean, median, 95th percentile and maximum of lengths [n] in tokens."""
    median, p95, most = np.percentile(lengths, [50, 95, 100]).round(2).tolist()
    return {"mean": round(float(lengths.mean()), 2), "median": median, "p95": p95, "max": int(most)}


def check_splits(name: str, sizes: Mapping[str, int]) -> None:
    """Raise UserError if a required split of a corpus has no examples."""
    missing = [split for split in REQUIRED if not sizes.get(split)]
    if missing:
        counts = ", ".join(f"{split}: {size}" for split, size in sizes.items())
        raise UserError(
            f"corpus {name} has no examples in {' and '.join(missing)} "
            f"(sizes: {counts or 'none'}); add the missing files, or put a blank line between "
            "documents"
        )
