"""Checks that published evidence is unchanged, and that tables and pages follow from it."""

from collections.abc import Collection
from pathlib import Path

from normlab.errors import UserError
from normlab.publishing.literature import LITERATURE, literature_page
from normlab.publishing.published import read, rendered
from normlab.records import manifest
from normlab.records.manifest import MANIFEST, stale, write_files
from normlab.records.packed import RECORDS
from normlab.reports.card_file import FOLDER
from normlab.reports.pages.cards import BOARD, card_pages
from normlab.studies.load import load_study

_NO_STUDIES = ("cards", "health")
"""Folders whose runs do not belong to a study."""


def verify(
    root: Path, study: str | None = None, *, write: bool = False
) -> tuple[list[str], list[str]]:
    """Check the evidence in a folder, and the tables and pages made from it.

    Returns two lists of lines: what is up to date or was written, and what is wrong. With `write`,
    outdated files are regenerated, except for studies whose evidence changed after publication.
    `study` limits the check to one study. Raises UserError if no study is published.
    """
    changed = manifest.problems(root)
    known = root / MANIFEST not in changed  # otherwise no file can be checked
    if study is not None and known:
        changed = {path: why for path, why in changed.items() if root / study in path.parents}
    up_to_date: list[str] = []
    wrong = [*changed.values()]
    if changed:
        wrong.append(manifest.restore_or_accept(root))
    for name in _unchanged(root, changed, study) if known else ():
        try:
            files = _files_of(root, name)
        except UserError as error:
            wrong += str(error).splitlines()
            continue
        late = stale(files)
        if write or not late:
            write_files({path: files[path] for path in late})
            wrote = ", ".join(path.name for path in late)
            up_to_date.append(f"{name}: {f'wrote {wrote}' if late else 'up to date'}")
        else:
            again = f"write it with normlab study publish --results {root}"
            states = {p: "does not match its records" if p.is_file() else "missing" for p in late}
            wrong += [f"{path}: {state}; {again}" for path, state in states.items()]
    return up_to_date, wrong


def _files_of(root: Path, name: Path) -> dict[Path, str]:
    """Return the text of the files generated from all cards, from a study, or for `LITERATURE`."""
    if name == root / BOARD:
        return card_pages(root)
    return (
        {name: literature_page(root, read)} if name == root / LITERATURE else rendered(None, name)
    )


def _unchanged(root: Path, changed: Collection[Path], study: str | None) -> list[Path]:
    """Return what can be made from unchanged evidence: the folders of studies, and the board.

    Raises UserError if no study is published.
    """
    every = [path.parent for path in sorted(root.glob(f"*/*/{RECORDS}"))]
    every = [folder for folder in every if folder.parent.name not in _NO_STUDIES]
    folders = [folder for folder in every if study in (None, folder.parent.name)]
    if not folders and not changed:
        what = "no study is" if study is None else f"the study {load_study(study).name} is not"
        published = ", ".join(sorted({folder.parent.name for folder in every})) or "none"
        again = f"normlab study run {study or 'STUDY'} --publish {root} publishes one"
        raise UserError(f"{what} published in {root} (published: {published}); {again}")
    touched = {folder for path in changed for folder in (path, *path.parents)}
    sources = [folder for folder in folders if folder not in touched]
    if study is None and (root / FOLDER).is_dir() and root / FOLDER not in touched:
        sources.append(root / BOARD)
    if study is None and root / LITERATURE not in touched and (root / LITERATURE).is_file():
        sources.append(root / LITERATURE)
    return sources
