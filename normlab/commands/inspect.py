"""`normlab inspect [RUN ...] [key=value ...]`: examine models without training, or a task's data.

With `--hf` or `--module`, the model is one that normlab did not build.
"""

import json
import shutil
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from normlab.commands._arguments import (
    Parser,
    add_notes,
    add_where,
    as_names,
    as_path,
    as_run,
    command_parser,
    conditions,
    setting_at,
)
from normlab.commands._inspect_any_model import (
    add_any_model,
    inspect_any_model,
    names_any_model,
)
from normlab.errors import UserError
from normlab.records.packed import address_of
from normlab.records.record import RunRecord, plain
from normlab.records.store import select
from normlab.reports.legend import Note, print_legend
from normlab.reports.run_paths import ended_runs, none_below
from normlab.reports.table_formats.markdown import averaged
from normlab.terminal import at_work, in_colour, print_prose, print_section, print_table

if TYPE_CHECKING:
    from normlab.findings.finding import Finding
    from normlab.findings.question import Question
    from normlab.inspection.model.built_model import BuiltModel

Runs = dict[Path, RunRecord]  # by folder
SHEET_FILE = "inspect.json"
_EXAMPLES = """\
examples:
  normlab inspect norm=bn placement=post model.depth=24
  normlab inspect runs/toy-bn-pre-1a2b3c4d5e/seed1
  normlab inspect norm=in --only leak,stepwise
  normlab inspect RUN norm.eval_stats=batch --json
  normlab inspect runs --where model=llama --only attention,rank,int8
  normlab inspect --data task=multi30k data_dir=FOLDER  sizes, checksums
  normlab inspect --hf FOLDER --text lines.txt --html report.html
  normlab inspect --module my.code:make_model --inputs my.code:batches

One model gets a verdict on each question: `broken`, worth a `look`, or `fine`.
Several runs are shown side by side: one row per experiment, averaged over
seeds. The exit status is 1 if a finding is `broken` or `failed`.
"""


def main(argv: list[str]) -> int:
    """Examine the model or data in the arguments, print the sheet and write `inspect.json`."""
    parser = _parser()
    arguments = parser.parse_intermixed_args(argv)
    if names_any_model(arguments):
        return inspect_any_model(parser, arguments)
    if arguments.data:
        if arguments.where:
            parser.error("--data describes data, not runs; omit --where")
        return _describe_data(arguments.words, as_json=arguments.json)
    return _inspect_models(arguments)


def _parser() -> Parser:
    parser = command_parser("inspect", _EXAMPLES)
    add = parser.add_argument
    add("words", nargs="*", metavar="RUN | key=value", help="runs, or settings as for train")
    add_where(parser, "only runs with this value; may be repeated")
    add("--only", type=as_names, default=[], metavar="NAME,...", help="ask only these questions")
    add("--details", action="store_true", help="print each answer's table below the summary")
    add("--data", action="store_true", help="prepare and describe the data of a task instead")
    add("--json", action="store_true", help="print the sheet as JSON")
    add_notes(parser)
    text = f"file to write; default: {SHEET_FILE} in a single run's folder, otherwise here"
    add("--out", type=as_path, metavar="FILE", help=text)
    add_any_model(parser)
    return parser


def _inspect_models(arguments: Namespace) -> int:
    """Examine runs, or one model at initialization. Return 1 if a verdict is failing."""
    from normlab.config.compose import compose
    from normlab.config.run_config import to_dict
    from normlab.records.files import atomic_write, check_writable

    with at_work("preparing"):
        runs, changes = _runs(arguments.words, arguments.where)
        configs = [] if runs else [to_dict(compose(changes))]  # before torch is loaded
        from normlab.inspection.model.built_model import model_from_config, model_from_run
        from normlab.inspection.questions import questions

        chosen = questions("model", names=arguments.only)
        # If settings differ from the run's own, the sheet is not written to the run's folder.
        folder = Path() if changes or len(runs) != 1 else next(iter(runs))
        file: Path = arguments.out or folder / SHEET_FILE
        check_writable(file.parent, instead="use --out FILE")
    if len(runs) > 1:
        content = _several(runs, changes, chosen, arguments)
    else:
        with at_work("preparing"):
            models = [model_from_run(run, changes) for run in runs]
            (built,) = models or map(model_from_config, configs)
        content = _one(built, chosen, arguments)
    text = json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n"
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(file) as opened:
        opened.write(text)
    print(text if arguments.json else f"written to {file}\n", end="")
    return int(_fails(content))


def _fails(content: dict[str, Any]) -> bool:
    """Return whether any sheet, of one or several runs, has a failing verdict."""
    from normlab.findings.summary import FAILING

    sheets = content["runs"].values() if "runs" in content else [content]
    return any(
        each["verdict"] in FAILING for sheet in sheets for each in sheet["findings"].values()
    )


def _runs(words: list[str], where: list[str]) -> tuple[Runs, list[str]]:
    """Return the records of the runs to examine, keyed by folder, and the settings to change."""
    from normlab.config.experiments import is_file
    from normlab.config.overrides import check_given_once

    names = [word for word in words if not is_file(word)]
    places = [word for word in names if "=" not in word or address_of(Path(word))]
    check_given_once([word for word in words if word not in places])
    if not places:
        if where:
            raise UserError("--where selects among runs; pass their folder, for example `runs`")
        return {}, words
    if setting := setting_at([as_run(place) for place in places]):
        raise UserError(f"{' '.join(places)}: no such run. Did you mean {setting}?")
    records = ended_runs([as_run(place) for place in places])
    runs = dict(select([*records.items()], conditions(where), lambda item: item[1]))
    if not runs:
        raise UserError(none_below([*map(Path, places)], f" with {' '.join(where)}"))
    return runs, [word for word in words if word not in places]


def _one(built: "BuiltModel", chosen: "Sequence[Question]", arguments: Namespace) -> dict[str, Any]:
    """Ask the questions about one model and return the sheet. Print the answers unless `--json`."""
    from normlab.inspection.model.findings import finding_on
    from normlab.inspection.model.inspect_json import sheet

    findings: dict[str, Finding] = {}
    if not arguments.json:
        print_prose(_subject(built))
        sys.stdout.flush()  # in a pipe, nothing else is printed for minutes
    for number, each in enumerate(chosen):
        with at_work(f"{each.name}, {number + 1} of {len(chosen)}"):
            findings[each.name] = finding_on(each, built, by_name=bool(arguments.only))
    if not arguments.json:
        _print_summary(findings)
        for each in chosen if arguments.only or arguments.details else ():
            finding = findings[each.name]
            if not finding.why_not:
                print_section(f"{each.name}: {each.text}", finding.answer, *finding.table)
        if not arguments.only and not arguments.details:
            print_prose("for tables, add --details, or --only with the names of questions")
    return sheet(built, findings)


def _subject(built: "BuiltModel") -> str:
    """Return the line that says which model is examined."""
    choices = built.config["choices"]
    choices_text = " ".join(f"{k}={choices[k]}" for k in ("task", "norm", "placement", "model"))
    run = built.run_id and f"run {built.run_id}, step {built.step}"
    return f"{choices_text} seed={built.seed}: {run or 'at initialization'}"


def _print_summary(findings: "Mapping[str, Finding]") -> None:
    """Print the conclusion, and the verdict on each question."""
    from normlab.findings.summary import conclusion, summary

    print_prose(conclusion(findings))
    width = shutil.get_terminal_size().columns
    print("\n".join(summary(findings, width=width, in_colour=in_colour())))


def _several(
    runs: Runs, changes: list[str], chosen: "Sequence[Question]", arguments: Namespace
) -> dict[str, Any]:
    """Ask the questions about several runs. Return the values of the rows, and all sheets.

    Prints one row per experiment unless `--json`. Raises UserError for a run that did not finish.
    """
    from normlab.inspection.model.inspect_json import sheets_side_by_side

    for folder, record in runs.items():
        if not record.finished:
            end = f"{record.outcome.status} at step {record.outcome.step:,}"
            raise UserError(f"{folder} {end}; leave it out with --where status=finished")
    content, columns = sheets_side_by_side(runs, changes, chosen, at_work)
    if not arguments.json:
        titles = [*dict.fromkeys(title for values in columns.values() for title in values)]
        rows: list[list[str]] = []
        for row, values in content["rows"].items():
            seeds = max((each["n"] for each in values.values()), default=1)
            name = f"{row} ({seeds} seeds)" if seeds > 1 else row
            rows.append([name, *(averaged(values.get(title)) for title in titles)])
        notes: list[Note] = []
        if without := ", ".join(name for name, values in columns.items() if not values):
            notes.append(Note(f"no number to compare, or not applicable: {without}"))
        notes += [
            Note(f"{', '.join(columns[each.name])}: {each.text}")
            for each in chosen
            if columns[each.name]
        ]
        print_table(["run", *titles], rows, numeric=titles, whole=["run"])
        print_legend(notes, whole=arguments.notes)
    return plain(content)


def _describe_data(overrides: list[str], *, as_json: bool) -> int:
    """Prepare a task's data and print its description. Raise UserError if the data is damaged.

    With `as_json`, the error is also printed, as `{"error": "..."}`.
    """
    from normlab.config.compose import compose
    from normlab.config.run_config import to_dict
    from normlab.training.build import build_task

    try:
        description = build_task(to_dict(compose(overrides))).describe()
    except (UserError, OSError) as error:
        if as_json:
            print(json.dumps({"error": str(error)}))
        raise
    if as_json:
        print(json.dumps(description, indent=1, sort_keys=True))
    else:
        print(yaml.safe_dump(description, sort_keys=False, allow_unicode=True), end="")
    return 0
