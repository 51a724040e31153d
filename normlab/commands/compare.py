"""`normlab compare`: compares finished runs by their records and translations."""

import argparse
import shutil
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len  # the width of text in columns; some characters take two

from normlab.commands._arguments import (
    add_compared,
    add_notes,
    check_compared,
    command_parser,
    conditions,
)
from normlab.errors import UserError
from normlab.formats import pipes
from normlab.metrics.significance import p_value, paired_interval
from normlab.records.labels import in_prose, one_line
from normlab.reports.arrangement.arrangement import Arrangement
from normlab.reports.arrangement.unplanned import arrange, arrange_by_recipe
from normlab.reports.legend import About, Note, print_legend
from normlab.reports.renaming import Names, chosen_names, with_row_names
from normlab.reports.run_paths import none_below
from normlab.reports.runs import Run, by_setting, read_runs
from normlab.reports.table_formats.terminal_table import print_tables
from normlab.reports.tables.build_table import build_table
from normlab.reports.where import matching_runs, none_matching, unmatched_values
from normlab.terminal import print_error, print_prose, print_table, wrapped

if TYPE_CHECKING:
    from normlab.metrics.bleu import Bootstrap
    from normlab.reports.translations.side_by_side import SideBySide

_EXAMPLES = """examples:
  normlab compare                                  all runs in runs/
  normlab compare --where task=toy --where norm=bn
  normlab compare runs/toy-ln-pre-* runs/toy-bn-pre-* --baseline bn
  normlab compare --columns test/bleu test/chrf --latex --stars
  normlab compare --names ln=LayerNorm bn=BatchNorm 'test/bleu=BLEU (%)' --latex
  normlab compare runs/iwslt-ln-post-* runs/iwslt-bn-post-* --bootstrap
  normlab compare runs/iwslt-ln-post-* runs/iwslt-bn-post-* --samples 3

A row averages the seeds that finished; the last column says how many did.
norm=bn+ln is bn in the encoder and ln in the decoder. Runs whose scores cannot
be compared (another task, model or budget) form separate tables. Each row is
compared with the baseline, the first row, over the seeds that both have;
--notes says why a row is not compared (different data, code, arithmetic or
steps), and how the rows differ.

--bootstrap tests whether a difference in BLEU would hold on other sentences,
with sacreBLEU's paired bootstrap (Koehn 2004); the table's interval is about
seeds.
"""
_SAMPLES = 5
_WIDEST_NAME = 24  # columns for the name of a row next to its translations
_BOOTSTRAP = 1000  # samples


def main(argv: list[str]) -> int:
    """Print the table. If a record is damaged or a row is refused, print a message and return 1.

    Raises `UserError` for a run, key or score that does not exist.
    """
    arguments = _parser().parse_args(argv)
    check_compared(arguments)
    _check(arguments)
    read, problems = read_runs(arguments.runs, ended=True)
    selected = matching_runs(read, conditions(arguments.where))
    if not selected:
        none = none_below(arguments.runs)
        if read and arguments.where:
            none = none_matching(read, arguments.runs, conditions(arguments.where))
        problems = problems or [none]
    else:
        problems += unmatched_values(read, conditions(arguments.where))
        problems += _show(selected, arguments)
    for problem in problems:
        print_error(problem)
    return 1 if problems else 0


def _check(arguments: argparse.Namespace) -> None:
    """Raise UserError for flags that cannot be combined, or that nothing would read."""
    samples = arguments.samples is not None
    if samples and arguments.samples < 1:
        raise UserError(f"--samples={arguments.samples} must be at least 1")
    if arguments.data_dir and not (samples or arguments.bootstrap):
        raise UserError("--data-dir is for the test text of --samples or --bootstrap; omit it")
    for flag, other, both in (
        ("--latex", "--markdown", arguments.latex and arguments.markdown),
        ("--latex", "--samples", arguments.latex and samples),
        ("--latex", "--bootstrap", arguments.latex and arguments.bootstrap),
        ("--markdown", "--samples", arguments.markdown and samples),
    ):
        if both:
            raise UserError(f"{other} cannot be combined with {flag}; omit one of them")


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("compare", _EXAMPLES)
    add_compared(parser)
    add = parser.add_argument
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--bootstrap", action="store_true", help="paired bootstrap of test BLEU")
    text = f"show N test sentences with the translations of each row; default: {_SAMPLES}"
    what.add_argument("--samples", nargs="?", const=_SAMPLES, type=int, metavar="N", help=text)
    add("--markdown", action="store_true", help="print the table in Markdown")
    add_notes(parser)
    return parser


def _show(runs: Sequence[Run], arguments: argparse.Namespace) -> list[str]:
    """Print tables, samples or the bootstrap. Return a line for each refused row of a table."""
    chosen = {
        "baseline": arguments.baseline,
        "scores": arguments.columns,
        "order": arguments.order,
    }
    whole = [arrange(runs, **chosen)] if arguments.bootstrap else arrange_by_recipe(runs, **chosen)
    names = chosen_names(arguments.names, whole)
    tables = [with_row_names(each, names, full=arguments.latex) for each in whole]
    if arguments.bootstrap:
        show_bootstrap(tables[0], arguments)
    elif arguments.samples is not None:
        show_samples(tables, arguments)
    else:
        return _show_tables(tables, names, arguments)
    return []


def _show_tables(
    tables: Sequence[Arrangement], names: Names, arguments: argparse.Namespace
) -> list[str]:
    """Print the tables in the requested format. Return a line for each refused row."""
    if not arguments.latex and not arguments.markdown:
        return print_tables(tables, names, whole_notes=arguments.notes)
    from normlab.reports.table_formats.latex import latex_table
    from normlab.reports.table_formats.markdown import markdown_table

    built = [build_table(runs, names) for runs in tables]
    for number, (runs, table) in enumerate(zip(tables, built, strict=True), 1):
        if arguments.latex:
            options = {"baseline": runs.baseline, "uncertainty": arguments.uncertainty}
            text = latex_table(table, **options, number=number)
        else:
            text = markdown_table(table)
        print(text, end="" if number == len(tables) else "\n")
    return [problem for table in built for problem in table.problems]


# Translations -------------------------------------------------------------------------------------


def show_samples(tables: Sequence[Arrangement], arguments: argparse.Namespace) -> None:
    """Print sentences, their references, and the translations of each row's first seed.

    Raises `UserError` if no run has kept translations, or the test text cannot be read.
    """
    from normlab.reports.translations.side_by_side import side_by_side

    count, first = arguments.samples, tables[0].runs[0].folder
    of_tables = [side_by_side(each.runs, arguments.data_dir, count=count) for each in tables]
    for each, samples in zip(tables, of_tables, strict=True):
        if samples is not None:
            if len(tables) > 1 and each.recipe:
                print_prose(f"{each.recipe}:")
            show_sentences(samples)
    if not any(of_tables):
        path = f"{first}/hypotheses.txt"
        cure = f"normlab eval {first} --outputs {path}"
        raise UserError(
            f"{path} does not exist, and no other run has translations; to write them: {cure}"
        )


def show_sentences(samples: "SideBySide") -> None:
    """Print sentences with their translations. Long row names get a line of their own."""
    room = shutil.get_terminal_size().columns
    for number, texts in samples.sentences.items():
        wide = min(max(cell_len(each.name) for each in texts), _WIDEST_NAME)
        print(f"sentence {number}")
        for each in texts:
            chrf = "" if each.chrf is None else f"{each.chrf:.1f}"
            name = each.name
            if cell_len(name) > wide:
                print("\n".join(wrapped(name, room, first="  ", rest="    ")))
                name = ""
            head = f"  {name}{' ' * (wide - cell_len(name))}  {chrf:>5}  "
            translation = one_line(each.text).strip() or "(nothing)"
            print("\n".join(wrapped(translation, room, first=head, rest=" " * len(head), cut=True)))
        print()
    shown = f"{len(samples.sentences)} of the {samples.total:,} sentences of {samples.data}"
    print_prose(f"{shown}, drawn at random; the number after a translation is its chrF")
    for reason in samples.left_out:
        print_prose(f"left out: {reason}")


def show_bootstrap(runs: Arrangement, arguments: argparse.Namespace) -> None:
    """Print the paired bootstrap of two experiments on their test sentences, one row per seed.

    A difference is the other row's BLEU minus the baseline's. Raises UserError if there are not
    exactly two experiments, or if they cannot be compared (the message says why).
    """
    from normlab.reports.translations.bootstrap import bootstrap

    if arguments.columns:
        raise UserError("--bootstrap always compares test/bleu; omit --columns")
    by_place = by_setting(runs.runs)
    sides = {" ".join(place).strip(): runs_there for place, runs_there in by_place.items()}
    if len(sides) != 2:
        got = f"got {len(sides)}: {', '.join(sides)}"
        raise UserError(f"--bootstrap compares two experiments, but {got}; pass two")
    names, (first, second) = [*sides], sides.values()
    tests = bootstrap(first, second, arguments.data_dir, samples=_BOOTSTRAP)
    columns = ["seed", *names, "difference", "p"]
    rows = [
        [seed, f"{t.baseline:.2f}", f"{t.other:.2f}", f"{t.other - t.baseline:+z.2f}", f"{t.p:.4f}"]
        for seed, t in tests.items()
    ]
    notes = _bootstrap_notes(tests, names, build_table(runs).notes)
    if arguments.markdown:
        texts = [in_prose(note.text) for note in notes]
        print("\n".join(pipes(columns, rows, words=0, notes=texts)))
    else:
        print_table(columns, rows, numeric=columns)
        print_legend(notes, whole=arguments.notes)


def _bootstrap_notes(
    tests: "Mapping[str, Bootstrap]", names: Sequence[str], of_table: Sequence[Note]
) -> list[Note]:
    """Return notes that explain what the paired bootstrap of two experiments tests.

    `of_table` are the notes on the experiments' table.
    """
    signature = [*tests.values()][-1].signature
    notes = [
        Note.short(f"difference: {names[1]} minus the baseline {names[0]}"),
        Note.short(
            f"test/bleu; p: paired bootstrap, {_BOOTSTRAP} samples of the sentences ({signature})"
        ),
        *(Note.short(note.text) for note in of_table if note.about is About.NOT_CLEAR),
        *(note for note in of_table if note.about is About.NOT_ALIKE),
    ]
    if "all" not in tests:
        return notes
    seeds = {int(seed): test for seed, test in tests.items() if seed != "all"}
    baselines = {seed: test.baseline for seed, test in seeds.items()}
    gap = paired_interval({seed: test.other for seed, test in seeds.items()}, baselines)
    return [
        *notes,
        Note.short("all: the counts of each sentence are summed over the seeds"),
        Note.short(
            f"over seeds: {gap.mean:+z.2f} [{gap.low:+z.2f}, {gap.high:+z.2f}], "
            f"p {p_value(gap):.4f} (t test); this interval is about other seeds, the bootstrap "
            "about other sentences"
        ),
    ]
