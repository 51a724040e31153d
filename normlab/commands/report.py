"""`normlab report`: make tables, pages and generated blocks of results again; check them."""

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from normlab.commands._compared import add_compared
from normlab.commands._help import HelpFormatter
from normlab.commands._paths import as_path
from normlab.commands._runs import nearest
from normlab.commands._terminal import complain
from normlab.records.store import without_collection
from normlab.registry import option_names

HELP = "make the page of any runs, or those of published studies again, from records"

_EXAMPLES = """examples:
  normlab report runs                     a page of all runs there: report/report.html
  normlab report runs/toy-ln-* runs/toy-bn-* --baseline ln --out paper
  normlab report                          every study published below results/, pages, blocks
  normlab report iwslt_norms              one study, at every scale that it is published at
  normlab report --check                  write nothing; fail if a file is not what records say
  normlab report --accept results/bench   a change of evidence is meant: list it as it is now
  normlab report --from FOLDER            other results than results/

Runs are folders of runs, as a sweep leaves one, run folders, or record.json files. Their page is
one file that opens without a network: a row an experiment, differences to the baseline paired by
seed, curves, how the runs trained, samples of what they translated, where their configs
differ. Tables and figures download as SVG and CSV. --watch rewrites it while runs train.

A study is published by `normlab study run STUDY --publish results`, in results/STUDY/SCALE:
runs.json, records/, and what this command makes of them: table.md, table.tex, table.csv and
report.html, a page with curves, filters and every run that opens without a network. README, the
pages of docs/ and of results/ may hold generated blocks, which are made of the same records.

Evidence itself (records, curves, hypotheses, reports of benchmarks) is never made again: its
checksums stand in results/MANIFEST.sha256, and nothing is made of a study whose evidence differs.
--check does not look at verdicts: normlab claims --check does.
"""


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    result = argparse.ArgumentParser(
        prog="normlab report",
        description=HELP.capitalize() + ".",
        epilog=_EXAMPLES,
        formatter_class=HelpFormatter,
    )
    result.add_argument(
        "what",
        nargs="*",
        metavar="STUDY|RUN",
        help="a study, or runs and folders of runs; default: every published study",
    )
    result.add_argument(
        "--out",
        type=as_path,
        default=Path("report"),
        metavar="FOLDER",
        help="of runs; default: report",
    )
    add_compared(result, where="of runs: ")
    result.add_argument(
        "--from",
        dest="root",
        type=as_path,
        default=Path("results"),
        metavar="FOLDER",
        help="where studies are published; default: results",
    )
    result.add_argument(
        "--watch", action="store_true", help="of runs: rewrite the page while they train"
    )
    result.add_argument("--check", action="store_true", help="write nothing; name what differs")
    result.add_argument(
        "--accept",
        nargs="+",
        type=as_path,
        metavar="PATH",
        help="list changed, new or lost evidence there in the manifest, and say what it was",
    )
    return result


@without_collection()
def main(argv: list[str]) -> int:
    """Make them again; 1 where one differs (--check) or cannot be made, which is said.

    Raises ValueError where nothing is published.
    """
    arguments = parser().parse_args(argv)
    if arguments.accept:
        return _accept(arguments.root, arguments.accept)
    if places := _places(arguments.what, arguments.root):
        if arguments.check:
            raise ValueError("--check is for published studies; the page of runs is made each time")
        from normlab.commands._runs_page import watch_page, write_page

        make = watch_page if arguments.watch else write_page
        return make(places, arguments.out, baseline=arguments.baseline, scores=arguments.score)
    study = arguments.what[0] if arguments.what else None
    return _studies(arguments.root, study, check=arguments.check)


def _places(what: Sequence[str], root: Path) -> list[Path]:
    """Return the places of runs that are named, none where a study is or nothing."""
    places = [Path(name) for name in what]
    studies = option_names("study")
    if len(what) == 1:
        published = what[0] == places[0].name and (root / what[0]).is_dir()
        if published or what[0] in studies:
            return []
    if named := [name for name in what if name in studies and not Path(name).exists()]:
        raise ValueError(f"{' '.join(named)}: give one study at a time, and no runs beside it")
    for place in places:
        if not place.exists():
            near = [*filter(None, [nearest(place)]), *get_close_matches(str(place), studies, n=1)]
            raise ValueError(
                f"{place}: no study and no folder of runs; `normlab list studies` and "
                "`normlab list runs` list them"
                + (f". Did you mean {' or '.join(map(str, near))}?" if near else "")
            )
    return places


def _studies(root: Path, study: str | None, *, check: bool) -> int:
    from normlab.reports.manifest import MANIFEST, by_file

    folders = _published(root, study)
    wrong = by_file(root)
    known = root / MANIFEST not in wrong  # else nothing is known to be as it was published
    if study is not None and known:
        own = root / study
        wrong = {path: problem for path, problem in wrong.items() if own in path.parents}
    for problem in wrong.values():
        complain(problem)
    if wrong:
        complain(
            "restore these files; or, if the change is meant, say so with normlab report "
            f"--from {root} --accept PATH"
        )
    failed = bool(wrong)
    for folder in folders:
        if known and not any(folder in path.parents for path in wrong):
            failed |= _tried(lambda folder=folder: _report(folder, check=check))
    if study is None and known:
        failed |= _tried(lambda: _pages(root, wrong, check=check))
        failed |= _tried(lambda: _blocks(root, wrong, check=check))
    if check and study is None and not failed and (root / "claims.md").is_file():
        where = "" if root == Path("results") else f" --results {root}"
        print(f"the ledger: normlab claims --check{where}")  # its verdicts are not looked at here
    return 1 if failed else 0


def _accept(root: Path, paths: Sequence[Path]) -> int:
    from normlab.reports.manifest import accept

    for change in accept(root, paths) or ["nothing has changed"]:
        print(change)
    return 0


def _tried(make: Callable[[], bool]) -> bool:
    """Tell whether something differs or cannot be made; say the latter."""
    try:
        return make()
    except ValueError as error:
        for line in str(error).splitlines():
            complain(line)
        return True


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


def _pages(root: Path, wrong: Iterable[Path], *, check: bool) -> bool:
    """Write or check the pages that belong to no study."""
    from normlab.reports.pages import pages

    found = {path: text for path, text in pages(root).items() if not _beside(path, wrong)}
    problem = "not what the evidence beside it says; make it with normlab report"
    return _made({path: (text, problem) for path, text in found.items()}, check=check)


def _blocks(root: Path, wrong: Iterable[Path], *, check: bool) -> bool:
    """Write or check generated blocks; of evidence that differs none is made."""
    from normlab.reports.blocks import pages_with_blocks, written

    if any(wrong):
        return True
    found: dict[Path, tuple[str, str]] = {}
    failed = False
    for page in pages_with_blocks(root):
        text, stale = written(page, root)
        if check:
            for line in stale:
                complain(f"{line}; make it with normlab report")
            failed |= bool(stale)
        found[page] = (text, "")
    if not check:
        return _made(found, check=False)
    for page in found if not failed else ():
        print(f"{page}: up to date")
    return failed


def _made(found: Mapping[Path, tuple[str, str]], *, check: bool) -> bool:
    """Write files whose text is another, or say so in a check; tell whether one found any."""
    from normlab.records.atomic import atomic_write

    failed = False
    for path, (text, problem) in found.items():
        if path.is_file() and path.read_bytes() == text.encode():
            print(f"{path}: up to date")
        elif check:
            complain(f"{path}: {problem}")
            failed = True
        else:
            with atomic_write(path) as file:
                file.write(text)
            print(f"{path}: written")
    return failed


def _beside(path: Path, wrong: Iterable[Path]) -> bool:
    return any(path.parent in each.parents for each in wrong)


def _published(root: Path, study: str | None) -> Sequence[Path]:
    """Return the folders of published studies, of one study or all.

    Raises ValueError for none, and for a study that is none.

    One that has tables or records and no runs.json is among them, to be complained about.
    """
    from normlab.records.store import RUNS_FILE
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
            f"normlab study run {study or 'STUDY'} --publish {root} publishes one"
        )
    return found


def _lost_runs(folder: Path) -> bool:
    """Tell whether a folder has tables or records, but not what says which belong together."""
    left = [folder / "records", folder / "table.md"]
    return any(path.exists() for path in left)
