"""`normlab inspect [RUN] [key=value ...]`: examine a model without training, or its data.

With `--hf` or `--module`, the model is one that normlab did not build.
"""

import json
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from normlab.commands._arguments import Parser, as_path, as_run, command_parser, one_run
from normlab.commands._terminal import at_work, print_prose, print_table
from normlab.records.packed import address_of

if TYPE_CHECKING:
    from normlab.inspect.model import Subject
    from normlab.inspect.question import Table

SHEET_FILE = "inspect.json"
_FOREIGN = ("hf", "module", "text", "trust_remote_code", "inputs", "all", "html")
_EXAMPLES = """\
examples:
  normlab inspect norm=bn placement=post model.depth=24
  normlab inspect runs/toy-bn-pre-1a2b3c4d5e/seed1
  normlab inspect norm=in --only leak,stepwise
  normlab inspect RUN norm.eval_stats=batch --json
  normlab inspect --data task=multi30k data_dir=FOLDER  sizes, checksums
  normlab inspect --hf FOLDER --text lines.txt --html report.html
  normlab inspect --module my.code:make_model --inputs my.code:batches
With --hf or --module, the exit status is 1 if a finding is `broken`.
"""


def main(argv: list[str]) -> int:
    """Examine the model or data in the arguments, print the sheet and write `inspect.json`."""
    does = "Examine a model at initialization or a finished run: leaks, statistics, gradients, ..."
    parser = command_parser("inspect", does, _EXAMPLES)
    add = parser.add_argument
    add("subject", nargs="*", metavar="RUN | key=value", help="a run, or settings as for train")
    add("--only", default="", metavar="NAME,...", help="ask only these questions")
    add("--data", action="store_true", help="prepare and describe the data of a task instead")
    add("--json", action="store_true", help="print the sheet as JSON")
    text = f"file to write; default: {SHEET_FILE} in the run's folder, or here"
    add("--out", type=as_path, help=text)
    add = parser.add_argument_group("models that normlab did not build").add_argument
    add("--hf", metavar="MODEL", help="a folder of transformers, or an id on huggingface.co")
    add("--text", type=as_path, metavar="FILE", help="lines to run; default: built-in sentences")
    add("--trust-remote-code", action="store_true", help="run Python code of the model's folder")
    add("--module", metavar="MODULE:NAME", help="a model, or a function that returns one")
    add("--inputs", metavar="MODULE:NAME", help="batches of its inputs, or a function")
    add("--all", action="store_true", help="ask the slow questions too")
    add("--html", type=as_path, metavar="FILE", help="write a page")
    arguments = parser.parse_intermixed_args(argv)
    if any(map(vars(arguments).get, _FOREIGN)):
        return _examine_foreign(parser, arguments)
    if arguments.data:
        return _describe_data(arguments.subject, as_json=arguments.json)

    from normlab.records.files import atomic_write

    with at_work("preparing"):
        from normlab.inspect.model import sheet
        from normlab.inspect.question import questions

        asked = questions("model", names=[name for name in arguments.only.split(",") if name])
        subject, folder = _subject(arguments.subject)
    if not arguments.json:
        choices = subject.config["choices"]
        named = " ".join(f"{k}={choices[k]}" for k in ("task", "norm", "placement", "model"))
        run = subject.run_id and f"run {subject.run_id}, step {subject.step}"
        print_prose(f"{named} seed={subject.seed}: {run or 'at initialization'}")
    findings = {}
    for number, each in enumerate(asked):
        with at_work(f"{each.name}, {number + 1} of {len(asked)}"):
            findings[each.name] = each.ask(subject)
        if not arguments.json:
            found = findings[each.name]
            show(f"{each.name}: {each.text}", found.answer, found.table)
    text = json.dumps(sheet(subject, findings), indent=1, sort_keys=True, allow_nan=False) + "\n"
    file = arguments.out or folder / SHEET_FILE
    with atomic_write(file) as opened:
        opened.write(text)
    print(text if arguments.json else f"written to {file}\n", end="")
    return 0


def _examine_foreign(parser: Parser, arguments: Namespace) -> int:
    """Examine a model that normlab did not build; return 1 if a finding is `broken`."""
    if arguments.subject or arguments.data or arguments.out:
        parser.error("--hf and --module take no RUN, key=value, --data or --out")
    one = bool(arguments.hf) != bool(arguments.module)
    if not one or bool(arguments.module) != bool(arguments.inputs):
        parser.error("give --hf MODEL, or --module MODULE:NAME with --inputs MODULE:NAME")
    if arguments.module and (arguments.text or arguments.trust_remote_code):
        parser.error("--text and --trust-remote-code need --hf")
    if arguments.html and not arguments.html.absolute().parent.is_dir():
        parser.error(f"--html {arguments.html}: there is no such folder")
    names = [name for name in arguments.only.split(",") if name]
    with at_work("loading the model"):
        from normlab.inspect.foreign.load import load_hf, load_names
        from normlab.inspect.foreign.subject import inspect

        if arguments.hf:
            trust = arguments.trust_remote_code
            model, batches, note = load_hf(arguments.hf, arguments.text, trust=trust)
        else:
            model, batches, note = load_names(arguments.module, arguments.inputs)
    with at_work("asking"):
        report = inspect(model, batches, checks=names or ("quick", "all")[arguments.all])
    if note and not arguments.json:
        print_prose(note)
    print(report.to_json() if arguments.json else f"{report}\n", end="")
    norms = report.findings.get("norms")
    if norms and norms.table.rows and not arguments.json:
        show("Norms", "What each pools over was found by changing single values.", norms.table)
    if arguments.html:
        report.to_html(arguments.html)
    return int(any(found.verdict == "broken" for found in report.findings.values()))


def _subject(words: list[str]) -> "tuple[Subject, Path]":
    """Return the subject to examine, and the folder for the sheet."""
    from normlab.config.suggest import check_given_once, is_file
    from normlab.inspect.model import subject_of_config, subject_of_run

    names = [word for word in words if not is_file(word)]
    runs = [word for word in names if "=" not in word or address_of(Path(word))]
    if len(runs) > 1:
        raise ValueError(f"{' and '.join(runs)}: inspect one run at a time")
    if not runs:
        check_given_once(words)
        return subject_of_config(words), Path()
    changes = [word for word in words if word not in runs]
    folder = one_run(as_run(runs[0]))
    # With other settings than the run's own, the sheet is not written to the run's folder.
    return subject_of_run(folder, changes), Path() if changes else folder


def show(title: str, text: str, table: "Table", drawing: Sequence[str] = ()) -> None:
    """Print a title, a paragraph, a drawing and a table whose numbers are right-aligned."""
    print()
    print_prose(title)
    print_prose(text, indent="  ")
    for line in drawing:
        print(line)
    columns, rows = table
    if rows:
        first = zip(columns, rows[0], strict=True)
        numeric = [column for column, value in first if not isinstance(value, str)]
        print_table(columns, [[_cell(value) for value in row] for row in rows], numeric=numeric)


def _cell(value: object) -> str:
    """Format a value for display; `-` if there is none."""
    if isinstance(value, float):
        return f"{value:.3g}"
    return "-" if value is None else f"{value:,}" if type(value) is int else str(value)


def _describe_data(overrides: list[str], *, as_json: bool) -> int:
    """Prepare a task's data and print its description; ValueError if the data is damaged."""
    from normlab.config.compose import compose, to_dict
    from normlab.train.build import build_task

    found = build_task(to_dict(compose(overrides))).describe()
    if as_json:
        print(json.dumps(found, indent=1, sort_keys=True))
    else:
        print(yaml.safe_dump(found, sort_keys=False, allow_unicode=True), end="")
    return 0
