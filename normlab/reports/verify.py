"""Whether results are as published and what is made of them follows; if not, it is made again."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from normlab.records.atomic import atomic_write
from normlab.records.store import RUNS_FILE
from normlab.reports.manifest import MANIFEST, by_file
from normlab.studies import load_study


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
    result = Verified()
    folders = published_studies(root, study)
    changed = by_file(root)
    known = root / MANIFEST not in changed  # else nothing is known to be as it was published
    if study is not None and known:
        own = root / study
        changed = {path: problem for path, problem in changed.items() if own in path.parents}
    result.wrong.extend(changed.values())
    if changed:
        result.wrong.append(
            "restore these files; or, if the change is meant, say so with normlab study "
            f"publish --results {root} --accept PATH"
        )
    if not known:
        return result
    for folder in folders:
        if not any(folder in path.parents for path in changed):
            _tried(result, lambda folder=folder: _study(result, folder, write=write))
    if study is None:
        _tried(result, lambda: _pages(result, root, changed, write=write))
        if not changed:
            _tried(result, lambda: _blocks(result, root, write=write))
    return result


def published_studies(root: Path, study: str | None) -> Sequence[Path]:
    """Return the folders of published studies, of one study or all; ValueError for none.

    A folder that has records and a table but no `runs.json` is among them, so that it is reported.
    """
    folders = sorted(path for path in root.glob("*/*") if path.is_dir())
    if study is not None:
        folders = [path for path in folders if path.parent.name == study]
    found = [
        path
        for path in folders
        if (path / RUNS_FILE).is_file()
        or ((path / "records").is_dir() and (path / "table.md").is_file())
    ]
    if not found:
        if study is not None:
            load_study(study)
        what = "no study is" if study is None else f"the study {study} is not"
        there = sorted({path.parents[1].name for path in root.glob(f"*/*/{RUNS_FILE}")})
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
    from normlab.reports import published

    name = published.study_name(folder)
    try:
        study = load_study(name)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None
    if write:
        made = [path.name for path in published.write(study, folder)]
        result.said.append(f"{folder}: {'wrote ' + ', '.join(made) if made else 'up to date'}")
        return
    stale = published.differing(study, folder)
    for path in stale:
        state = "not what its records say" if path.is_file() else "missing"
        cure = f"make it with normlab report {name} --from {folder.parents[1]}"
        result.wrong.append(f"{path}: {state}; {cure}")
    if not stale:
        result.said.append(f"{folder}: up to date")


def _pages(result: Verified, root: Path, changed: Iterable[Path], *, write: bool) -> None:
    """Check or write the pages that belong to no study."""
    from normlab.reports.pages import pages

    touched = {path.parent for each in changed for path in (each, *each.parents)}
    found = {path: text for path, text in pages(root).items() if path.parent not in touched}
    if write:
        _write(result, found)
        return
    for path, text in found.items():
        if path.is_file() and path.read_bytes() == text.encode():
            result.said.append(f"{path}: up to date")
        else:
            problem = "not what the evidence next to it says; make it with normlab report"
            result.wrong.append(f"{path}: {problem}")


def _blocks(result: Verified, root: Path, *, write: bool) -> None:
    """Check or write the generated blocks of README, docs and results."""
    from normlab.reports.blocks import pages_with_blocks, written

    found: dict[Path, str] = {}
    stale: list[str] = []
    for page in pages_with_blocks(root):
        found[page], wrong = written(page, root)
        stale += wrong
    if write:
        _write(result, found)
    else:
        result.wrong.extend(f"{line}; make it with normlab report" for line in stale)
        result.said.extend(f"{page}: up to date" for page in found if not stale)


def _write(result: Verified, files: Mapping[Path, str]) -> None:
    for path, text in files.items():
        if path.is_file() and path.read_bytes() == text.encode():
            result.said.append(f"{path}: up to date")
        else:
            with atomic_write(path) as file:
                file.write(text)
            result.said.append(f"{path}: written")
