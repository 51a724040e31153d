"""`normlab eval RUN [key=value ...]`: re-score finished runs with other settings."""

import json
from argparse import Namespace
from collections.abc import Callable, Mapping
from math import isclose
from pathlib import Path
from statistics import fmean
from typing import Any

from msgspec import to_builtins

from normlab.commands._arguments import add_notes, add_run, as_path, as_text, command_parser
from normlab.commands._loading import load
from normlab.config.overrides import check_given_once
from normlab.errors import UserError
from normlab.records.record import Score
from normlab.records.store import read_record
from normlab.reports.legend import Note, print_legend
from normlab.reports.run_paths import runs_of
from normlab.terminal import at_work, print_error, print_table

_EXAMPLES = """\
examples:
  normlab eval runs/toy-bn-pre-1a2b3c4d5e   all seeds of an experiment
  normlab eval runs/toy-bn-pre-1a2b3c4d5e/seed1
  normlab eval RUN task.test_search.beam=1
  normlab eval RUN norm.eval_stats=batch task.eval_batch_size=8
  normlab eval RUN --fold                   batch norm folded
  normlab eval results/batching/small:bn@seed1 --kept data_dir=FOLDER

The scores are printed, and the run's record does not change; --json > FILE
saves them.
"""

Scores = dict[Path, Mapping[str, Score]]
"""Scores by run folder and name."""


def main(argv: list[str]) -> int:
    """Load each run with the changes, score the split and print the scores."""
    arguments = _parsed(argv)
    folders = runs_of(arguments.run)
    if arguments.outputs and len(folders) > 1:
        raise UserError(f"--outputs works with one run, but {arguments.run} has {len(folders)}")
    scores_of: Scores = {}
    smoothing, limit = 0.0, None
    path_in_record: Callable[[str], str] = str
    for folder in folders:
        if arguments.kept:
            from normlab.training.rescore import score_kept

            scores_of[folder] = score_kept(folder, arguments.changes)
            continue
        run = load(folder, arguments.changes, weights=arguments.weights, fold=arguments.fold)
        with at_work(f"scoring {folder}"):
            more = {"outputs": arguments.outputs, "limit": arguments.limit}
            scores_of[folder] = run.evaluate(arguments.split, **more)
        smoothing = float(run.config["task"].get("label_smoothing") or 0.0)
        limit = arguments.limit or _limit_of(run.config, whole=arguments.outputs is not None)
        path_in_record = run.path_in_record
    if arguments.json:
        plain = {str(folder): to_builtins(scores) for folder, scores in scores_of.items()}
        print(json.dumps(plain if len(plain) > 1 else plain[str(folders[0])], indent=1))
    else:
        columns = [*(folder.name for folder in folders), "mean" if len(folders) > 1 else "record"]
        print_table(["score", *columns], _rows(scores_of, path_in_record), numeric=columns)
        notes = _notes(scores_of, smoothing)
        if len(folders) == 1 and not arguments.kept:
            notes += _note_on_limits(folders[0], limit)
        print_legend(notes, whole=arguments.notes)
    differing = _unlike_the_record(scores_of) if arguments.kept else []
    for text in differing:
        print_error(text)
    return 1 if differing else 0


def _parsed(argv: list[str]) -> Namespace:
    """Return the arguments. Raise UserError for values that contradict each other."""
    parser = command_parser("eval", _EXAMPLES)
    add_run(parser, "a finished run, or an experiment (all its seeds)")
    add = parser.add_argument
    add("--split", default="test", type=as_text, help="the split to score; default: test")
    add("--limit", type=int, metavar="N", help="score only N examples of the split")
    add("--fold", action="store_true", help="fold batch norm or TaperNorm into linear layers")
    add(
        "--kept",
        action="store_true",
        help="re-score kept translations; exit status 1 if a score differs",
    )
    add("--json", action="store_true", help="print JSON")
    add("--outputs", type=as_path, metavar="FILE", help="write the model's outputs to this file")
    add_notes(parser)
    arguments = parser.parse_intermixed_args(argv)
    check_given_once(arguments.changes)
    if arguments.limit is not None and arguments.limit < 1:
        raise UserError(f"--limit={arguments.limit} must be at least 1")
    if arguments.limit is not None and arguments.outputs:
        raise UserError("--outputs needs the whole split; omit --limit")
    if arguments.outputs and (arguments.outputs.is_dir() or not arguments.outputs.parent.is_dir()):
        raise UserError(f"--outputs {arguments.outputs} must be a file in a folder that exists")
    if arguments.kept:
        others = {
            "--fold": arguments.fold,
            "--limit": arguments.limit is not None,
            "--outputs": arguments.outputs,
            "--split": arguments.split != "test",
            "--weights": arguments.weights is not None,
        }
        if wrong := [flag for flag, value in others.items() if value]:
            raise UserError(f"--kept re-scores the saved test translations; omit {wrong[0]}")
    return arguments


def _unlike_the_record(scores_of: Scores) -> list[str]:
    """Return a line for each score of kept translations that differs from the record."""
    return [
        f"{folder}: {name} differs between the record and the kept translations"
        for folder, scores in scores_of.items()
        for name, score in scores.items()
        if not isclose(score.value, read_record(folder).scores[name].value, abs_tol=1e-9)
    ]


def _rows(scores_of: Scores, path_in_record: Callable[[str], str]) -> list[list[str]]:
    """Return one row per score: each run's value, and the mean over runs or the record's value."""
    recorded = read_record(next(iter(scores_of))).scores
    rows: list[list[str]] = []
    for name in dict.fromkeys(name for scores in scores_of.values() for name in scores):
        values = [None if (s := each.get(name)) is None else s.value for each in scores_of.values()]
        if len(values) > 1:
            values.append(fmean(value for value in values if value is not None))
        else:
            other = recorded.get(path_in_record(name))
            values.append(None if other is None else other.value)
        rows.append([name, *("-" if value is None else f"{value:.4g}" for value in values)])
    return rows


def _limit_of(config: Mapping[str, Any], *, whole: bool = False) -> int | None:
    """Return how many examples of a split are scored at most, or None for the `whole` split."""
    return None if whole else (config.get("validate") or {}).get("limit")


def _note_on_limits(folder: Path, limit: int | None) -> list[Note]:
    """Return a note if the scores, limited to `limit` examples, cover others than the record's."""
    if limit == (recorded := _limit_of(read_record(folder).config)):
        return []
    now, before = (f"at most {n:,} examples" if n else "the whole split" for n in (limit, recorded))
    return [Note.short(f"these scores are for {now}; the record's are for {before}")]


def _notes(scores_of: Scores, smoothing: float) -> list[Note]:
    """Return the notes on the table. `smoothing` is the label smoothing that the loss includes."""
    names_by_way: dict[str, dict[str, None]] = {}
    for scores in scores_of.values():
        for name, score in scores.items():
            if score.signature:
                names_by_way.setdefault(score.signature, {})[name] = None
    notes: list[Note] = []
    if smoothing and any(name.endswith("/loss") for each in scores_of.values() for name in each):
        text = f"loss includes label smoothing {smoothing:g}; nll and perplexity do not"
        notes.append(Note.short(text))
    return notes + [
        Note(f"scored by: {', '.join(names)} {way}") for way, names in names_by_way.items()
    ]
