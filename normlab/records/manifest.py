"""The manifest of the evidence, which shows whether results have changed since publication.

`results/MANIFEST.sha256` has one line per file, a checksum and a path, in the format of
`sha256sum -c`. It lists every file in results/ that is not generated from other files: records,
curves, hypotheses, measurements, and hand-written pages. Generated files (tables and pages of
studies and cards, and the ledger) are checked by regenerating them (`verification.verify`). Entries
change only if evidence is published, or if a person accepts a changed file by its path.
"""

import hashlib
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from normlab.errors import UserError
from normlab.records.files import atomic_write, only_writer
from normlab.records.packed import RECORDS

MANIFEST = "MANIFEST.sha256"
PAGE_FILE = "report.html"
TABLES = ("table.md", "table.tex", "table.csv", PAGE_FILE)
"""The files generated from the runs of a study."""
_NEXT_TO_RECORDS = {"cards": ("card.html",), "health": ()}
"""The files generated from the records next to them, in folders whose runs belong to no study."""
BLOCK = "<!-- normlab: "
"""The start of a generated block (`normlab.blocks`). A page with such blocks is not evidence."""
_MADE = (
    MANIFEST,
    "claims.md",
    "claims.json",
    "summary.md",
    "sentences.md",
    "which_norm.md",
    "cards.md",
    "literature.md",
)


def accept(root: Path, paths: Iterable[Path], *, required: bool = True) -> list[str]:
    """Add the current evidence at these paths, or inside them, to the manifest.

    Return a line per change. Raises UserError for a path outside `root` and, if evidence is
    `required`, for a path without evidence on disk or in the manifest.
    """
    changes: list[str] = []
    with only_writer(root / MANIFEST):
        listed, present = read(root), _checksums(root)
        for path in paths:
            if not path.resolve().is_relative_to(root.resolve()):
                raise UserError(f"{path} is not in {root}; pass a file or folder in {root}")
            place = path.resolve().relative_to(root.resolve())
            below = [name for name in {*listed, *present} if Path(name).is_relative_to(place)]
            if required and not below:
                raise UserError(f"{path} has no evidence; pass a file or folder in {root}")
            for name in sorted(below):
                if name not in present:
                    changes.append(f"{root / name}: removed")
                    del listed[name]
                elif listed.get(name) != present[name]:
                    changes.append(f"{root / name}: {'changed' if name in listed else 'added'}")
                    listed[name] = present[name]
        if changes:
            lines = [f"{checksum}  {name}\n" for name, checksum in sorted(listed.items())]
            write_files({root / MANIFEST: "".join(lines)})
    return changes


def problems(root: Path, files: Collection[Path] | None = None) -> dict[Path, str]:
    """Return a message for each file (or each one of `files`) that does not match the manifest."""
    path = root / MANIFEST
    try:
        listed = read(root)
    except UserError as error:
        return {path: str(error)}
    present = _checksums(root, files)
    if present and not listed:
        return {path: f"{path} is missing or empty; it must list all evidence"}
    messages: dict[Path, str] = {}
    for name in sorted({*listed, *present}):
        if listed.get(name) != present.get(name) and (files is None or root / name in files):
            why = f"changed since it was published (checksum in {MANIFEST})"
            why = why if name in present else f"missing, but listed in {MANIFEST}"
            why = why if name in listed else f"not in {MANIFEST}"
            messages[root / name] = f"{root / name}: {why}"
    return messages


def restore_or_accept(root: Path) -> str:
    """Return what to do about files that do not match the manifest."""
    accepting = f"normlab study publish --results {root} --accept PATH"
    return f"restore these files; or, if the change is intended, accept it with {accepting}"


def read(root: Path) -> dict[str, str]:
    """Return the checksums in the manifest by path, or raise UserError if it is damaged."""
    path = root / MANIFEST
    listed: dict[str, str] = {}
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    for number, line in enumerate(lines, 1):
        checksum, gap, name = line.partition("  ")
        if len(checksum) != 64 or not gap or not name or name in listed:
            raise UserError(f"{path}, line {number} is damaged ({line:.60}); restore the file")
        listed[name] = checksum
    return listed


def _checksums(root: Path, only: Collection[Path] | None = None) -> dict[str, str]:
    """Return the checksums of all or only some evidence on disk, by path relative to `root`."""
    checksums: dict[str, str] = {}
    for folder, _, files in os.walk(root):
        for path in (Path(folder) / name for name in files if not name.startswith(".")):
            place = path.relative_to(root)
            if only is not None and path not in only:
                continue
            if _is_generated(place, RECORDS in files):
                continue
            content = path.read_bytes()
            if content and not (path.suffix == ".md" and BLOCK.encode() in content):
                checksums[place.as_posix()] = hashlib.sha256(content).hexdigest()
    return checksums


def _is_generated(place: Path, next_to_records: bool) -> bool:
    """Return whether a file in the folder of published runs is checked by regenerating it."""
    if len(place.parts) == 3 and next_to_records:
        return place.name in _NEXT_TO_RECORDS.get(place.parts[0], TABLES)
    return place.as_posix() in _MADE


def write_files(files: Mapping[Path, str]) -> None:
    """Write each text to its file, atomically."""
    for path, text in files.items():
        with atomic_write(path) as file:
            file.write(text)


def stale(files: Mapping[Path, str]) -> list[Path]:
    """Return the files that are missing or differ from their expected text."""
    present = {path: path.read_bytes() for path in files if path.is_file()}
    return [path for path, text in files.items() if present.get(path) != text.encode()]
