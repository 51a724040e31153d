"""Whether results are as published: the manifest of the evidence, and what is made of it.

The manifest, `results/MANIFEST.sha256`, has one line per file: a checksum and a path, as
`sha256sum -c` reads them. It lists every file below results/ that is not made of others: records,
curves, hypotheses, reports of benchmarks, pages written by hand. What is made of them (tables,
pages, the ledger, generated blocks) is checked by making it again. An entry is written where
evidence is published, or where a person accepts a change by name.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from normlab.records.files import atomic_write, only_writer
from normlab.records.packed import RECORDS
from normlab.studies import load_study

MANIFEST = "MANIFEST.sha256"
PAGE = "report.html"
TABLES = ("table.md", "table.tex", "table.csv", PAGE)
"""What is made of the runs that lie beside it."""
MADE_PAGES = ("depth_gradients/table.md", "health/multi30k/table.md", "health/toy/table.md")
"""What `reports/pages.py` makes of other evidence, besides the pages and the board of cards."""
_CARD_PAGES = ("cards.md", "cards/*/card.html")
BLOCK = "<!-- normlab: "
"""How a generated block begins; a page with one is made, and is checked block by block."""
_LEDGER = ("claims.md", "claims.html", "summary.md")
_NO_STUDIES = ("cards", "health")
"""Folders whose runs fill no table of a study."""


def accept(root: Path, paths: Iterable[Path], *, named: bool = True) -> list[str]:
    """List the evidence at or below some paths as it is; return what changed, one line per file.

    Raises ValueError for a path that is not below `root` and, if a person named it, where nothing
    is and was listed.
    """
    with only_writer(root / MANIFEST):
        return _accept(root, paths, named)


def _accept(root: Path, paths: Iterable[Path], named: bool) -> list[str]:
    listed, there = read(root), _found(root)
    changes: list[str] = []
    for path in paths:
        try:
            place = path.resolve().relative_to(root.resolve()).as_posix()
        except ValueError:
            raise ValueError(f"{path} is not below {root}: name a file or folder there") from None
        names = [name for name in sorted({*listed, *there}) if _below(name, place)]
        if named and not names:
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
        tables = TABLES if len(here.relative_to(root).parts) == 2 else ()
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


def _write(root: Path, listed: Mapping[str, str]) -> None:
    with atomic_write(root / MANIFEST) as file:
        file.write("".join(f"{checksum}  {name}\n" for name, checksum in sorted(listed.items())))


# What is made of the evidence ---------------------------------------------------------------------


@dataclass(frozen=True)
class Verified:
    """What was said of files, one line each: what is right or was written, and what is wrong."""

    said: list[str] = field(default_factory=list[str])
    wrong: list[str] = field(default_factory=list[str])


def verify(root: Path, study: str | None = None, *, write: bool = False) -> Verified:
    """Check the evidence below a folder, and the tables, pages and blocks that are made of it.

    With `write` what does not follow is made again; nothing is made of a study whose evidence is
    not as published. `study` asks for one study alone. Raises ValueError where none is published.
    """
    from normlab.reports.pages import pages

    result = Verified()
    changed = by_file(root)
    known = root / MANIFEST not in changed  # else nothing is known to be as it was published
    if study is not None and known:
        changed = {path: why for path, why in changed.items() if root / study in path.parents}
    try:
        folders = published_studies(root, study)
    except ValueError:
        if not changed:
            raise
        folders = []  # their records are among what is missing
    result.wrong.extend(changed.values())
    if changed:
        result.wrong.append(
            "restore these files; or, if the change is meant, say so with normlab study "
            f"publish --results {root} --accept PATH"
        )
    if not known:
        return result
    touched = {folder for path in changed for folder in (path, *path.parents)}
    for folder in folders:
        if folder not in touched:
            _tried(result, lambda folder=folder: _study(result, folder, write=write))
    if study is None:

        def others() -> None:
            for path, text in pages(root).items():
                if path.parent not in touched:
                    _settle(result, path, {path: text}, "normlab study publish", write=write)

        _tried(result, others)
        if not changed:
            _tried(result, lambda: _blocks(result, root, write=write))
    return result


def published_studies(root: Path, study: str | None) -> Sequence[Path]:
    """Return the folders of published studies, of one study or all; ValueError for none."""
    every = [path.parent for path in sorted(root.glob(f"*/*/{RECORDS}"))]
    every = [folder for folder in every if folder.parent.name not in _NO_STUDIES]
    found = [folder for folder in every if study in (None, folder.parent.name)]
    if not found:
        if study is not None:
            load_study(study)
        what = "no study is" if study is None else f"the study {study} is not"
        there = sorted({folder.parent.name for folder in every})
        raise ValueError(
            f"{what} published below {root}: there are {', '.join(there) or 'none'}; "
            f"normlab study run {study or 'STUDY'} --publish {root} publishes one"
        )
    return found


def _tried(result: Verified, make: Callable[[], None]) -> None:
    try:
        make()
    except ValueError as error:
        result.wrong.extend(str(error).splitlines())


def _study(result: Verified, folder: Path, *, write: bool) -> None:
    from normlab.reports.published import rendered

    name = folder.parent.name
    try:
        study = load_study(name)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None
    made_by = f"normlab study publish {name} --results {folder.parents[1]}"
    _settle(result, folder, rendered(study, folder), made_by, write=write)


def _blocks(result: Verified, root: Path, *, write: bool) -> None:
    """Check or write the generated blocks of README, docs and results."""
    from normlab.reports.pages import pages_with_blocks, written

    found = {page: written(page, root) for page in pages_with_blocks(root)}
    for page, (text, wrong) in found.items():
        if not write:
            result.wrong.extend(f"{line}; make it with normlab study publish" for line in wrong)
        if write or not wrong:
            _settle(result, page, {page: text}, "normlab study publish", write=write)


def _settle(
    result: Verified, name: Path, files: Mapping[Path, str], made_by: str, *, write: bool
) -> None:
    """Check or write files that are made of evidence."""
    late = stale(files)
    if write:
        write_files({path: files[path] for path in late})
        wrote = ", ".join(path.name for path in late)
        result.said.append(f"{name}: {f'wrote {wrote}' if late else 'up to date'}")
        return
    for path in late:
        state = "not what its records say" if path.is_file() else "missing"
        result.wrong.append(f"{path}: {state}; make it with {made_by}")
    if not late:
        result.said.append(f"{name}: up to date")


def write_files(files: Mapping[Path, str]) -> None:
    """Write texts, each as a whole or not at all."""
    for path, text in files.items():
        with atomic_write(path) as file:
            file.write(text)


def stale(files: Mapping[Path, str]) -> list[Path]:
    """Return the files that are missing or do not have the text that they should."""
    return [
        path
        for path, text in files.items()
        if not path.is_file() or path.read_bytes() != text.encode()
    ]
