"""`normlab compare`: a table of finished runs, one row per experiment, from their records."""

from pathlib import Path
from typing import TYPE_CHECKING

from normlab.commands._arguments import add_compared, as_path, command_parser
from normlab.commands._runs import conditions, none_below, read_places
from normlab.commands._terminal import complain, print_prose, print_table
from normlab.commands._translations import show_bootstrap, show_samples
from normlab.records.store import select
from normlab.reports.gather import arranged, found_run
from normlab.reports.study_table import BOLD, build
from normlab.reports.table import markdown

if TYPE_CHECKING:
    from normlab.reports.table import Table

_EXAMPLES = """examples:
  normlab compare                                  all runs below runs/
  normlab compare --where task=toy --where norm=bn
  normlab compare runs/toy-ln-pre-* runs/toy-bn-pre-* --baseline bn
  normlab compare --score test/chrf --score valid/loss
  normlab compare runs/iwslt-ln-post-* runs/iwslt-bn-post-* --bootstrap
  normlab compare runs/iwslt-ln-post-* runs/iwslt-bn-post-* --samples 3

A row averages the seeds that finished; `stability` says how the others ended.
norm=bn+ln is bn in the encoder and ln in the decoder. Each row is compared with
the baseline, which is the first, over the seeds of both; notes say why some are
not (other data, code, arithmetic or number of steps), and what rows differ in.

--bootstrap asks whether a difference in BLEU would hold on other sentences, by
sacreBLEU's paired bootstrap (Koehn 2004) on what two experiments translated.
The interval asks another question: whether it would hold with other seeds.

Lines fit the terminal's width, in a pipe 80 columns or what COLUMNS says.
"""
_SAMPLES = 5


def main(argv: list[str]) -> int:
    """Print the table; return 1 if a record is damaged or a row is refused, with a message.

    Raises `ValueError` for a run, key or score that does not exist.
    """
    parser = command_parser("compare", "Show finished runs side by side.", _EXAMPLES)
    add = parser.add_argument
    text = "a run folder, a folder of runs or a record.json; default: all of --runs-dir"
    add("runs", nargs="*", type=as_path, metavar="RUN", help=text)
    text = "only runs with this option, status, seed or config value; may be repeated"
    add("--where", action="append", default=[], metavar="KEY=VALUE", help=text)
    add_compared(parser, scores="the first of the task")
    what = parser.add_mutually_exclusive_group()
    text = "test BLEU of two experiments on the test's sentences, seed by seed (translation)"
    what.add_argument("--bootstrap", action="store_true", help=text)
    text = f"show N sentences of the test as each row translated them; default: {_SAMPLES}"
    what.add_argument("--samples", nargs="?", const=_SAMPLES, type=int, metavar="N", help=text)
    text = "where the text of the test is now, if it was moved (--bootstrap, --samples)"
    add("--data-dir", type=as_path, metavar="FOLDER", help=text)
    add("--markdown", action="store_true", help="print the table in Markdown")
    add("--runs-dir", type=as_path, default=Path("runs"), help="default: runs")
    arguments = parser.parse_args(argv)
    places = arguments.runs or [arguments.runs_dir]
    read, problems = read_places(places)
    kept = select([record for _, record in read], conditions(arguments.where))
    ids = {id(record) for record in kept}
    found = [found_run(folder, record) for folder, record in read if id(record) in ids]
    runs = arranged(found, baseline=arguments.baseline, scores=arguments.score) if found else None
    if runs is None:
        which = " that fits" if arguments.where and read else ""
        problems = problems or [none_below(places, which)]
    elif arguments.bootstrap:
        show_bootstrap(runs, arguments)
    elif arguments.samples is not None:
        show_samples(runs, arguments)
    else:
        table = build(*runs, found=True)
        if arguments.markdown:
            print(markdown(table), end="")
        else:
            show_table(table, runs.study.baseline)
        problems += [f"{row.label}: {row.problem}" for row in table.rows if row.problem]
    for problem in problems:
        complain(problem)
    return 1 if problems else 0


def show_table(table: "Table", baseline: str) -> None:
    """Print the scores of a table, then the differences from the baseline, then the notes.

    A star marks what is bold in Markdown.
    """
    scores: list[list[str]] = []
    gaps: list[list[str]] = []
    labels = 2 if any(row.point for row in table.rows) else 1
    for row, entries, last in table.lines:
        names = [row.name, row.point or "-"][:labels]
        texts = [f"{each.value}{' *' if each.best else ''}" for each in entries]
        scores.append([*names, *texts, *last])
        if any(each.gap for each in entries):
            gaps.append([*names, *(each.gap or "-" for each in entries)])
    notes = [note.replace("bold", "*", 1) if note == BOLD else note for note in table.notes]
    head = [*table.head[:labels], *table.head[2:]]
    print_prose(table.title)
    columns = table.columns
    print_table(head, scores, numeric=columns, labels=labels, notes=[] if gaps else notes)
    if gaps:
        print()
        at = " at the same point" if labels == 2 else ""
        print_prose(f"difference to {baseline}{at}, paired by seed")
        head = [*head[:labels], *columns]
        print_table(head, gaps, numeric=columns, labels=labels, notes=notes)
