"""`normlab inspect [RUN] [key=value ...]`: examine a model without training it."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from normlab.commands._arguments import as_path, command_parser
from normlab.commands._runs import one_run
from normlab.commands._terminal import at_work, print_prose, print_table
from normlab.records.labels import placement_label

if TYPE_CHECKING:
    from normlab.inspect.model import Subject
    from normlab.inspect.question import Finding, Question

SHEET_FILE = "inspect.json"
# The questions are worded for text; of images the screen says it in these words.
_OF_IMAGES = {
    "nats a token": "nats an image",
    "sentence": "image",
    "token": "position",
    r"\Atext\Z": "split",  # the head of a column
}

_EXAMPLES = """\
examples:
  normlab inspect norm=bn placement=post model.depth=24
  normlab inspect runs/toy-bn-pre-1a2b3c4d5e/seed1
  normlab inspect norm=in --only leak,stepwise
  normlab inspect RUN norm.eval_stats=batch --json
  normlab inspect --data task=multi30k data_dir=FOLDER  sizes, checksums
"""


def main(argv: list[str]) -> int:
    """Examine what the arguments name, print the sheet and write `inspect.json`."""
    if "--data" in argv:
        from normlab.commands.data import main as describe

        return describe([word for word in argv if word != "--data"])
    does = "Examine a model at initialization or a finished run: leaks, statistics, gradients, ..."
    parser = command_parser("inspect", does, _EXAMPLES)
    add = parser.add_argument
    text = "a run folder with settings that replace its own, or a config as for normlab train"
    add("subject", nargs="*", metavar="RUN | key=value", help=text)
    add("--only", default="", metavar="NAME,...", help="ask these questions alone")
    add("--data", action="store_true", help="describe the data of a config's task instead")
    add("--json", action="store_true", help="print the sheet as JSON")
    text = f"the file (default: {SHEET_FILE} in the run's folder, or here)"
    add("--out", type=as_path, help=text)
    arguments = parser.parse_intermixed_args(argv)

    from normlab.records.files import atomic_write

    with at_work("preparing"):
        from normlab.inspect.model import sheet
        from normlab.inspect.question import questions
        from normlab.tasks.images import Classification

        asked = questions("model", [name for name in arguments.only.split(",") if name])
        subject, folder = _subject(arguments.subject)
    if not arguments.json:
        print_prose(_title(subject))
    pictures = isinstance(subject.task, Classification)
    findings = {}
    for number, each in enumerate(asked):
        with at_work(f"{each.name}, {number + 1} of {len(asked)}", done=number, total=len(asked)):
            findings[each.name] = each.ask(subject)
        if not arguments.json:
            _show(each, findings[each.name], _OF_IMAGES if pictures else {})
    text = json.dumps(sheet(subject, findings), indent=1, sort_keys=True, allow_nan=False) + "\n"
    file = arguments.out or folder / SHEET_FILE
    with atomic_write(file) as opened:
        opened.write(text)
    print(text if arguments.json else f"written to {file}", end="" if arguments.json else "\n")
    return 0


def _subject(words: list[str]) -> "tuple[Subject, Path]":
    """Return what is examined and the folder its sheet is written to."""
    from normlab.config.suggest import check_given_once
    from normlab.inspect.model import subject_of_config, subject_of_run

    runs = [word for word in words if "=" not in word]
    if len(runs) > 1:
        raise ValueError(f"{' and '.join(runs)}: inspect one run at a time")
    if not runs:
        check_given_once(words)
        return subject_of_config(words), Path()
    changes = [word for word in words if word not in runs]
    folder = one_run(Path(runs[0]))
    # Settings that are not the run's own make another sheet.
    return subject_of_run(folder, changes), Path() if changes else folder


def _title(subject: "Subject") -> str:
    choices, model = subject.config["choices"], subject.config["model"]
    keys = ("task", "norm", "placement", "model")
    if placement_label(choices, subject.config) is None:
        keys = ("task", "norm", "model")
    named = " ".join(f"{key}={choices[key]}" for key in keys)
    stacks = [str(count) for key, count in model.items() if key.endswith("_layers")]
    layers = "layer" if stacks == ["1"] else "layers"
    depth = f"{'+'.join(stacks)} {layers} of width {model['dim']}, " if stacks else ""
    state = f"run {subject.run_id}, step {subject.step}" if subject.run_id else "at initialization"
    return f"{named} seed={subject.seed}: {depth}{state}"


def _show(asked: "Question", finding: "Finding", words: Mapping[str, str]) -> None:
    print()
    print_prose(f"{asked.name}: {_worded(asked.text, words)}")
    print_prose(_worded(finding.answer, words), indent="  ")
    if finding.table.rows:
        columns = [_worded(column, words) for column in finding.table.columns]
        rows = [[_worded(_cell(value), words) for value in row] for row in finding.table.rows]
        numeric = [
            column
            for index, column in enumerate(columns)
            if not isinstance(finding.table.rows[0][index], str)
        ]
        print_table(columns, rows, numeric=numeric)


def _worded(text: str, words: Mapping[str, str]) -> str:
    """Put other words in a text, for the patterns of a word's beginning."""
    for word, other in words.items():
        text = re.sub(rf"\b{word}", other, text)
    return text


def _cell(value: str | float | int | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
