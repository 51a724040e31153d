"""Checks that published evidence is unchanged, and that tables and pages follow from it."""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from normlab.config.folders import RESULTS
from normlab.errors import UserError
from normlab.publishing.literature import LITERATURE, literature_folders, literature_page
from normlab.publishing.plan import check_plan
from normlab.publishing.published import read, rendered
from normlab.records import manifest
from normlab.records.manifest import MANIFEST, stale, write_files
from normlab.records.packed import RECORDS
from normlab.reports.card_file import FOLDER as CARDS
from normlab.reports.pages.cards import BOARD, card_pages
from normlab.studies.load import load_study

_NOT_STUDIES = ("cards", "health")
"""Folders whose runs do not belong to a study."""


class Verified(NamedTuple):
    """A line per study or page that is up to date or was rewritten, and a line per problem."""

    up_to_date: list[str]
    problems: list[str]


class _Generated(NamedTuple):
    """Files generated from published evidence.

    `name` is printed in the lines about them. They are generated only if all
    folders in `evidence` are unchanged. `texts` returns their texts, keyed by path.
    """

    name: Path
    evidence: Collection[Path]
    texts: Callable[[], Mapping[Path, str]]


def verify(root: Path, study: str | None = None, *, write: bool = False) -> Verified:
    """Check the evidence in a folder, and the tables and pages generated from it.

    With `write`, outdated files are regenerated, except those whose evidence has changed since it
    was published. `study` limits the check to one study. Raises UserError if that study, or any
    study at all, is not published.
    """
    changed = manifest.problems(root)
    if root / MANIFEST in changed:  # without a manifest, no file can be checked
        return Verified([], [*changed.values(), manifest.restore_or_accept(root)])
    if study is not None:
        changed = {path: why for path, why in changed.items() if root / study in path.parents}
    verified = Verified([], [*changed.values()])
    if changed:
        verified.problems.append(manifest.restore_or_accept(root))
    folders = _study_folders(root, study, required=not changed)
    touched = {folder for path in changed for folder in (path, *path.parents)}
    for generated in _all_generated(root, folders, whole=study is None):
        if not touched.isdisjoint(generated.evidence):
            continue
        try:
            texts = generated.texts()
        except UserError as error:
            verified.problems.extend(str(error).splitlines())
            continue
        outdated = stale(texts)
        if write or not outdated:
            write_files({path: texts[path] for path in outdated})
            wrote = ", ".join(path.name for path in outdated)
            state = f"wrote {wrote}" if outdated else "up to date"
            verified.up_to_date.append(f"{generated.name}: {state}")
        else:
            verified.problems.extend(_outdated_lines(outdated, root))
    return verified


def _outdated_lines(paths: Collection[Path], root: Path) -> Iterator[str]:
    for path in paths:
        state = "does not match its records" if path.is_file() else "missing"
        yield f"{path}: {state}; write it with normlab study publish --results {root}"


def _study_folders(root: Path, study: str | None, *, required: bool) -> list[Path]:
    """Return the folders of published studies at their scales, or only the folders of one study.

    If there are none although one is `required`, raises UserError.
    """
    packed = [path.parent for path in sorted(root.glob(f"*/*/{RECORDS}"))]
    every = [folder for folder in packed if folder.parent.name not in _NOT_STUDIES]
    folders = [folder for folder in every if study in (None, folder.parent.name)]
    if required and not folders:
        what = "no study is" if study is None else f"the study {load_study(study).name} is not"
        published = ", ".join(sorted({folder.parent.name for folder in every})) or "none"
        again = f"normlab study run {study or 'STUDY'} --publish {root} publishes one"
        raise UserError(f"{what} published in {root} (published: {published}); {again}")
    return folders


def _all_generated(root: Path, folders: Collection[Path], *, whole: bool) -> Iterator[_Generated]:
    """Yield the files generated from each study.

    If `whole`, also yield those generated from all report cards, and the page of published numbers.
    """
    # Elsewhere, the runs may have overrides that their study does not plan.
    planned = root.resolve() == RESULTS
    for folder in folders:
        yield _Generated(folder, [folder], partial(_of_study, folder, planned=planned))
    if not whole:
        return
    if (root / CARDS).is_dir():
        yield _Generated(root / BOARD, [root / CARDS], partial(card_pages, root))
    literature, shown = root / LITERATURE, literature_folders(root)
    if literature.is_file() or not shown.isdisjoint(folders):
        yield _Generated(literature, shown, lambda: {literature: literature_page(root, read)})


def _of_study(folder: Path, *, planned: bool) -> Mapping[Path, str]:
    """Return the files generated from a study's runs, which must be as it plans if `planned`."""
    texts = rendered(None, folder)
    if planned:
        check_plan(folder)
    return texts
