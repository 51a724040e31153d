"""Parallel text in the tables of the Hugging Face Hub: JSON lines or Parquet, there or in a folder.

Decides how rows become pairs, and what a user reads where the data cannot be had.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from normlab.data.corpus import ParallelText

_KINDS = ("*.jsonl", "*.jsonl.gz", "*.parquet")
TABLES = (*_KINDS, *(f"*/{kind}" for kind in _KINDS))


def read_table(
    path: str,
    *,
    languages: tuple[str, str],
    revision: str | None = None,
    cache_dir: Path | None = None,
) -> dict[str, ParallelText]:
    """Load a data set of the hub, or a local folder of its files; splits keep their own names.

    A row holds both sentences as columns named by language (`de`, `en`), or under `translation`.
    Raises whatever `datasets` raises where it finds nothing, and ValueError for rows of another
    shape.
    """
    import datasets  # heavy, and not needed where the text lies in plain files

    tables = datasets.load_dataset(
        path, revision=revision, cache_dir=str(cache_dir) if cache_dir else None
    )
    if not isinstance(tables, Mapping):
        raise ValueError(f"{path} has no named splits; give train, validation and test files")
    return {
        str(split): _pairs(table, f"{path}:{split}", languages) for split, table in tables.items()
    }


def _pairs(table: Any, origin: str, languages: tuple[str, str]) -> ParallelText:
    columns = table.column_names
    if "translation" in columns:
        rows = table["translation"]
        sides = [[row[lang] for row in rows] for lang in languages if rows and lang in rows[0]]
    else:
        sides = [list(table[lang]) for lang in languages if lang in columns]
    if len(sides) != 2:
        raise ValueError(
            f"{origin} has the columns {', '.join(columns)}; needed are {' and '.join(languages)}, "
            "or `translation` with both; give a data set of this language pair"
        )
    # A sentence with a stray line break at either end is the same sentence; one inside is refused
    # by `checked`.
    source, target = ([str(line).strip() for line in side] for side in sides)
    return ParallelText(
        source, target, origins=(f"{origin}:{languages[0]}", f"{origin}:{languages[1]}")
    )


def has_tables(folder: Path) -> bool:
    """Tell whether a folder holds JSON lines or Parquet files, at its top or one level below."""
    return any(next(folder.glob(pattern), None) is not None for pattern in TABLES)


def unavailable(what: str, tried: str, error: Exception, ways_out: str) -> ValueError:
    """Return the error for data that could not be had: what was tried and the ways out."""
    cause = " ".join(str(error).split())
    short = cause if len(cause) <= 200 else cause[:200] + "..."
    return ValueError(
        f"cannot get {what}: tried {tried}, which failed with {type(error).__name__}: {short}. "
        f"{ways_out} Or use task=toy, which needs no data and no network."
    )
