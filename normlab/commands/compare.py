"""`normlab compare`: finished runs side by side, one row per experiment, from their records."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from normlab.commands._arguments import HelpFormatter, add_compared, as_path
from normlab.commands._comparison import show, usual_scores
from normlab.commands._runs import conditions, given_twice, none_below, read_places
from normlab.commands._terminal import complain
from normlab.commands._translations import add_samples, show_bootstrap, show_samples
from normlab.records.aggregate import Cell, group
from normlab.records.record import RunRecord
from normlab.records.store import select, without_collection
from normlab.reports.arrange import check_scores

HELP = "show finished runs side by side: score, spread, spikes, outcome, speed"

_EXAMPLES = """examples:
  normlab compare                                  all runs below runs/
  normlab compare --where task=toy --where norm=bn
  normlab compare runs/toy-ln-pre-* runs/toy-bn-pre-* --baseline bn
  normlab compare --score test/chrf --score valid/loss
  normlab compare --where task=mlm --score valid/steps_to/mlm_accuracy_0.2
  normlab compare runs/iwslt-ln-post-* runs/iwslt-bn-post-* --bootstrap
  normlab compare runs/iwslt-ln-post-* runs/iwslt-bn-post-* --samples 3 --differ

A row averages the seeds that finished; `outcome` says how the others ended.
norm=bn+ln is bn in the encoder and ln in the decoder. Rows are sorted by the
first score, the best first. The second table compares each with the baseline:
the mean of row minus baseline over the seeds of both, with its 95 % interval.
It names what rows differ in besides their names, why some are not paired
(different numbers of steps; for a seed different data, code or arithmetic),
and scores that are not clear of the untrained baseline.

--bootstrap asks whether a difference in BLEU would hold on other sentences, by
sacreBLEU's paired bootstrap (Koehn 2004) on what two experiments translated.
The interval asks another question: whether it would hold with other seeds.

Lines fit the terminal's width, in a pipe 80 columns or what COLUMNS says.
"""


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    result = argparse.ArgumentParser(
        prog="normlab compare",
        description="Show finished runs side by side.",
        epilog=_EXAMPLES,
        formatter_class=HelpFormatter,
    )
    result.add_argument(
        "runs",
        nargs="*",
        type=as_path,
        metavar="RUN",
        help="a run folder, a folder of runs or a record.json; default: all of --runs-dir",
    )
    result.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="only runs with this option, status, seed or config value; may be repeated",
    )
    add_compared(result, baseline="ln, else the best", scores="the first ones of the task")
    result.add_argument(
        "--bootstrap",
        action="store_true",
        help="test BLEU of two experiments on the test's sentences, seed by seed (translation)",
    )
    result.add_argument(
        "--data-dir",
        type=as_path,
        metavar="FOLDER",
        help="where the text of the test is now, if it was moved",
    )
    add_samples(result)
    result.add_argument("--markdown", action="store_true", help="print the table in Markdown")
    result.add_argument("--runs-dir", type=as_path, default=Path("runs"), help="default: runs")
    return result


def main(argv: list[str]) -> int:
    """Print the table; 1 where a record is damaged or runs cannot be averaged, which is said.

    Raises `ValueError` for a run, key or score that does not exist.
    """
    arguments = parser().parse_args(argv)
    if arguments.bootstrap and arguments.score:
        raise ValueError("--bootstrap compares test/bleu: leave out --score")
    if arguments.data_dir is not None and not (arguments.bootstrap or arguments.samples):
        raise ValueError("--data-dir is for --bootstrap and --samples, which need the test's text")
    if arguments.samples is None and (arguments.worst or arguments.differ or arguments.draw):
        raise ValueError("--worst, --differ and --draw choose samples: add --samples")
    return _compare(arguments)


@without_collection()
def _compare(arguments: argparse.Namespace) -> int:
    runs, problems = read_places(arguments.runs or [arguments.runs_dir])
    folders = {id(record): folder for folder, record in runs}
    records = select([record for _, record in runs], conditions(arguments.where))
    if arguments.bootstrap and records:
        show_bootstrap(
            {folders[id(record)]: record for record in records},
            baseline=arguments.baseline,
            data_dir=arguments.data_dir,
            markdown=arguments.markdown,
        )
    elif arguments.samples is not None and records:
        show_samples([(folders[id(record)], record) for record in records], arguments)
    elif records:
        problems += _show(records, folders, arguments)
    elif not problems:
        which = " that fits" if arguments.where and runs else ""
        problems.append(none_below(arguments.runs or [arguments.runs_dir], which))
    for problem in problems:
        complain(problem)
    return 1 if problems else 0


def _show(
    records: Sequence[RunRecord], folders: Mapping[int, Path], arguments: argparse.Namespace
) -> list[str]:
    """Print the table; return why runs of others could not be averaged."""
    check_scores(arguments.score, records)
    problems: list[str] = []
    cells: list[Cell] = []
    scores = arguments.score or usual_scores(records)
    for members in group(records).values():
        if (twice := given_twice(members, folders)) is not None:
            problems.append(twice)
            continue
        try:
            cell = Cell.of(members)
            for name in scores:
                cell.score(name)
        except ValueError as error:
            problems.append(str(error))
        else:
            cells.append(cell)
    if cells:
        show(cells, scores, baseline=arguments.baseline, markdown=arguments.markdown)
    return problems
