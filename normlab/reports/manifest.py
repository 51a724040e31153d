"""The manifest of the evidence, `results/MANIFEST.sha256`: a checksum and a path a line.

It lists every file below results/ that is not made of others: records, curves, hypotheses, lists of
runs, reports of benchmarks, pages written by hand. What is made of them (tables, pages, the ledger,
generated blocks) is checked by making it again. An entry is written where evidence is published, or
where a person accepts a change by name; nothing else changes one. `sha256sum -c` reads the format.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from normlab.records.atomic import atomic_write, only_writer
from normlab.records.store import RUNS_FILE

MANIFEST = "MANIFEST.sha256"
PAGE = "report.html"
TABLES = ("table.md", "table.tex", "table.csv", PAGE)
"""What is made of the runs that lie beside it."""
MADE_PAGES = ("depth_gradients/table.md", "health/multi30k/table.md", "health/toy/table.md")
"""What is made of other evidence, by `reports/pages.py`, beside cards' pages and their board."""
_CARD_PAGES = ("cards.md", "cards/*/card.html")
BLOCK = "<!-- normlab: "
"""How a generated block begins; a page with one is made, and is checked block by block."""
_LEDGER = ("claims.md", "claims.html", "summary.md")
_RECORDS = "records"


def write(root: Path) -> Path:
    """List all evidence below a folder as it is, whatever was listed before; return the file."""
    return _write(root, _found(root))


def accept(root: Path, paths: Iterable[Path], *, lost: Iterable[Path] = ()) -> list[str]:
    """List the evidence at or below some paths as it is; return what changed, a line a file.

    `lost` are files that need not have been listed. Raises ValueError for a path that is not below
    `root`, or where nothing is and was listed.
    """
    with only_writer(root / MANIFEST):
        return _accept(root, paths, lost)


def _accept(root: Path, paths: Iterable[Path], lost: Iterable[Path]) -> list[str]:
    listed, there = read(root), _found(root)
    changes: list[str] = []
    gone = set(lost)
    for path in (*paths, *gone):
        try:
            place = path.resolve().relative_to(root.resolve()).as_posix()
        except ValueError:
            raise ValueError(f"{path} is not below {root}: name a file or folder there") from None
        names = [name for name in sorted({*listed, *there}) if _below(name, place)]
        if not names and path not in gone:
            raise ValueError(f"{path}: there is no evidence; name a file or a folder below {root}")
        for name in names:
            if name not in there:
                changes.append(f"{root / name}: removed")
                del listed[name]
            elif listed.get(name) != there[name]:
                changes.append(f"{root / name}: {'changed' if name in listed else 'added'}")
                listed[name] = there[name]
    if changes:
        _write(root, listed)
    return changes


def problems(root: Path) -> list[str]:
    """Return what is wrong with the evidence, each naming the file; none where all is as listed."""
    return list(by_file(root).values())


def by_file(root: Path) -> dict[Path, str]:
    """Return what is wrong with the evidence, by file."""
    try:
        listed = read(root)
    except ValueError as error:
        return {root / MANIFEST: str(error)}
    there = _found(root)
    if there and not listed:
        return {root / MANIFEST: f"{root / MANIFEST}: missing or empty; it lists all evidence"}
    found: dict[Path, str] = {}
    for name in sorted({*listed, *there}):
        path = root / name
        if name not in there:
            found[path] = f"{path}: missing, and {MANIFEST} lists it"
        elif name not in listed:
            found[path] = f"{path}: not in {MANIFEST}"
        elif listed[name] != there[name]:
            found[path] = f"{path}: changed since it was published, as {MANIFEST} says"
    return found


def read(root: Path) -> dict[str, str]:
    """Return the checksum of each listed file, none without a manifest; ValueError for damage."""
    path = root / MANIFEST
    listed: dict[str, str] = {}
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    for number, line in enumerate(lines, 1):
        checksum, gap, name = line.partition("  ")
        if len(checksum) != 64 or not gap or not name or name in listed:
            raise ValueError(f"{path}, line {number}: damaged: {line:.60}; restore the file")
        listed[name] = checksum
    return listed


def _found(root: Path) -> dict[str, str]:
    """Return the checksums of all evidence, by path below the folder."""
    found: dict[str, str] = {}
    for folder, _, files in os.walk(root):
        here = Path(folder)
        tables = TABLES if RUNS_FILE in files or (here / _RECORDS).is_dir() else ()
        for name in files:
            place = (here / name).relative_to(root).as_posix()
            made = name in tables or place in (MANIFEST, *_LEDGER, *MADE_PAGES)
            made = made or any(fnmatchcase(place, pattern) for pattern in _CARD_PAGES)
            if made or name.startswith("."):
                continue
            content = (here / name).read_bytes()
            if not (name.endswith(".md") and BLOCK.encode() in content):
                found[place] = hashlib.sha256(content).hexdigest()
    return found


def _below(name: str, place: str) -> bool:
    return place == "." or name == place or name.startswith(f"{place}/")


def _write(root: Path, listed: Mapping[str, str]) -> Path:
    path = root / MANIFEST
    with atomic_write(path) as file:
        file.write("".join(f"{checksum}  {name}\n" for name, checksum in sorted(listed.items())))
    return path
