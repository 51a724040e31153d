"""The published runs of a study, `results/<study>/<scale>/`, and the files generated from them.

The runs are packed (`normlab.records.packed`). `publish.py` adds runs, and `verification.py` checks
that the files match them.
"""

from collections.abc import Mapping
from pathlib import Path

from normlab.errors import UserError
from normlab.publishing.study_arrangement import study_arrangement
from normlab.records.grouping import grouped
from normlab.records.manifest import PAGE_FILE
from normlab.records.packed import MEND_PUBLISHED, RECORDS, Key, Pack, pack
from normlab.records.record import RunRecord, fingerprint
from normlab.reports.pages.report_page import study_page
from normlab.reports.renaming import with_row_names
from normlab.reports.runs import Run
from normlab.reports.table_formats.comma_separated import comma_separated
from normlab.reports.table_formats.latex import latex_table
from normlab.reports.table_formats.markdown import markdown_table
from normlab.reports.tables.build_table import build_table
from normlab.studies.load import load_study
from normlab.studies.study import Study


def read(folder: Path) -> list[Run]:
    """Return the runs of a published study.

    Raises a UserError if there is none, or if records do not match their config.
    """
    if not (folder / RECORDS).exists():
        raise UserError(f"{folder} is not a published study, because it has no {RECORDS}")
    runs = pack(folder)
    check_records(runs)
    return [
        Run(key, record, runs.curves.get(key, ()), record and runs.addresses[key])
        for key, record in runs.records.items()
    ]


def check_records(runs: Pack) -> None:
    """Raise a UserError that lists the published records that do not belong where they are."""
    problems = misplaced(runs.records).values()
    if problems:
        path = runs.folder / RECORDS
        raise UserError("\n".join(f"{path}: {problem}; {MEND_PUBLISHED}" for problem in problems))


def misplaced(records: Mapping[Key, RunRecord | None]) -> dict[Key, str]:
    """Return why records do not match their config or their seed, for those that do not.

    They were changed by hand, or copied from another run: two seeds never end with the same scores.
    """
    problems = _copies(records)
    for key, record in records.items():
        if record is None:
            continue
        if fingerprint(record.config) != record.fingerprint:
            problems[key] = f"the fingerprint of {record.run_id} does not match its config"
        elif record.seed != key.seed or not record.run_id.endswith(f"-seed{key.seed}"):
            problems[key] = f"{key.name} with seed {key.seed} has the record of {record.run_id}"
    return problems


def _copies(records: Mapping[Key, RunRecord | None]) -> dict[Key, str]:
    """Return a message for each record of a finished run whose scores are those of another seed."""
    same = grouped(
        ((key.row_and_point, frozenset(record.scores.items())), key)
        for key, record in records.items()
        if record is not None and record.finished and record.scores
    )
    return {
        key: f"{key.name} has the same scores with seed {key.seed} and with seed {other.seed}"
        for keys in same.values()
        for key, other in zip(keys, [*keys[1:], keys[0]], strict=True)
        if key != other
    }


def rendered(study: Study | None, folder: Path) -> dict[Path, str]:
    """Return the texts of all files generated from a published study's records, keyed by path.

    If `study` is None, the folder's path has its name. Raises UserError for damaged files, for a
    study that does not exist, and for a row that the study no longer has.
    """
    study = study or load_study(folder.parent.name)
    runs, scale = read(folder), folder.name
    if lost := {run.key.row for run in runs} - {*study.rows}:
        raise UserError(
            f"{folder / RECORDS}: the study {study.name} has no row {min(lost)!r}; restore it, or "
            f"remove {folder} and publish again"
        )
    source = study_arrangement(study, scale, runs)
    table = build_table(source)
    paper = with_row_names(source, {}, full=True)
    in_latex = latex_table(build_table(paper), baseline=paper.baseline, uncertainty="stars")
    return {
        folder / "table.md": markdown_table(table),
        folder / "table.tex": in_latex,
        folder / "table.csv": comma_separated(table),
        folder / PAGE_FILE: study_page(source, table, folder),
    }
