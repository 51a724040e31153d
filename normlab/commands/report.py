"""`normlab report`: make tables and pages of published studies again; check them."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from normlab.commands._terminal import complain
from normlab.records.store import without_collection
from normlab.registry import option_names

HELP = "make tables and pages of published studies again from their records"

_EXAMPLES = """examples:
  normlab report                          every study published below results/
  normlab report iwslt_norms              one study, at every scale that it is published at
  normlab report --check                  write nothing; fail if a file is not what records say
  normlab report --from FOLDER            other results than results/

A study is published by `normlab reproduce STUDY --publish results`, in results/STUDY/SCALE:
runs.json, records/, and what this command makes of them: table.md, table.tex, table.csv and
report.html, a page with curves, filters and every run that opens without a network.
"""


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    result = argparse.ArgumentParser(
        prog="normlab report",
        description=HELP.capitalize() + ".",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument("study", nargs="?", metavar="STUDY", help="default: every one there is")
    result.add_argument(
        "--from",
        dest="root",
        type=Path,
        default=Path("results"),
        metavar="FOLDER",
        help="where studies are published; default: results",
    )
    result.add_argument("--check", action="store_true", help="write nothing; name what differs")
    return result


@without_collection()
def main(argv: list[str]) -> int:
    """Make them again; 1 where one differs (--check) or cannot be made, which is said.

    Raises ValueError where nothing is published.
    """
    arguments = parser().parse_args(argv)
    failed = False
    for folder in _published(arguments.root, arguments.study):
        try:
            differs = _report(folder, check=arguments.check)
        except ValueError as error:
            for line in str(error).splitlines():
                complain(line)
            differs = True
        failed = failed or differs
    return 1 if failed else 0


def _report(folder: Path, *, check: bool) -> bool:
    """Write or check what is made of one study; tell whether a check found a difference."""
    from normlab.reports.published import differing, study_name, write
    from normlab.studies import load_study

    name = study_name(folder)
    try:
        study = load_study(name)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None
    if not check:
        written = [path.name for path in write(study, folder)]
        print(f"{folder}: {'wrote ' + ', '.join(written) if written else 'up to date'}")
        return False
    stale = differing(study, folder)
    for path in stale:
        state = "not what its records say" if path.is_file() else "missing"
        complain(f"{path}: {state}; make it with normlab report {name} --from {folder.parents[1]}")
    if not stale:
        print(f"{folder}: up to date")
    return bool(stale)


def _published(root: Path, study: str | None) -> Sequence[Path]:
    """Return the folders of published studies, of one study or all.

    Raises ValueError for none, and for a study that is none.

    One that has tables or records and no runs.json is among them, to be complained about.
    """
    from normlab.reports.published import RUNS_FILE
    from normlab.studies import load_study

    folders = sorted(path for path in root.glob("*/*") if path.is_dir())
    if study is not None:
        folders = [path for path in folders if path.parent.name == study]
    known = option_names("study") if study is None else [study]
    found = [
        path
        for path in folders
        if (path / RUNS_FILE).is_file() or (path.parent.name in known and _lost_runs(path))
    ]
    if not found:
        if study is not None:
            load_study(study)
        what = "no study is" if study is None else f"the study {study} is not"
        there = sorted({path.parents[1].name for path in root.glob(f"*/*/{RUNS_FILE}")})
        raise ValueError(
            f"{what} published below {root}: there are {', '.join(there) or 'none'}; "
            f"normlab reproduce {study or 'STUDY'} --publish {root} publishes one"
        )
    return found


def _lost_runs(folder: Path) -> bool:
    """Tell whether a folder has tables or records, but not what says which belong together."""
    left = [folder / "records", folder / "table.md"]
    return any(path.exists() for path in left)
