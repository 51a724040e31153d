"""`normlab eval RUN [key=value ...]`: score finished runs again under other settings."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from math import isclose
from pathlib import Path
from statistics import fmean

from msgspec import to_builtins

from normlab.commands._arguments import add_run, as_path, command_parser
from normlab.commands._runs import load, runs_of
from normlab.commands._terminal import at_work, print_table
from normlab.records.files import atomic_write
from normlab.records.record import Score
from normlab.records.store import RunStore

EVAL_FILE = "eval.jsonl"
"""Results of `normlab eval` in a run folder: one line per split, weights and settings."""

_EXAMPLES = """\
examples:
  normlab eval runs/toy-bn-pre-1a2b3c4d5e   all seeds of an experiment
  normlab eval runs/toy-bn-pre-1a2b3c4d5e/seed1
  normlab eval RUN task.test_search.beam=1
  normlab eval RUN norm.eval_stats=batch task.eval_batch_size=8
  normlab eval RUN norm.eval_stats=recalibrated --split valid --json
  normlab eval RUN "observe.test_noise=[0.4]"  also with noise on the input
  normlab eval RUN fold=true                batch norm folded
  normlab eval RUN --weights best_loss      other weights than the tested ones
  normlab eval RUN --limit 100              about 100 examples of the split
  normlab eval results/batching/small:bn@seed1 --kept data_dir=FOLDER  of a published run

The scores are printed and added to eval.jsonl in the run's folder; its record stays as it is.
"""


def main(argv: list[str]) -> int:
    """Load each run with the changes, score the split, print the scores and keep them."""
    does = "Score finished runs again under other settings."
    parser = command_parser("eval", does, _EXAMPLES)
    add_run(parser, "a finished run, or an experiment (all its seeds)")
    add = parser.add_argument
    add("--split", default="test", help="the split to score; default: test")
    add("--limit", type=int, metavar="N", help="score about N examples of it")
    text = "score the translations kept next to the record; 1 if a score differs from it"
    add("--kept", action="store_true", help=text)
    add("--json", action="store_true", help="print JSON")
    add("--outputs", type=as_path, help="write the model's outputs to this file")
    arguments = parser.parse_intermixed_args(argv)
    # Whether to fold is the one setting that is not in a run's config.
    folds = [text for text in arguments.changes if text.startswith("fold=")]
    changes = [text for text in arguments.changes if text not in folds]
    for text in folds:
        if text not in ("fold=true", "fold=false"):
            raise ValueError(f"{text}: it is true or false")
    if arguments.limit is not None and (arguments.limit < 1 or arguments.outputs):
        raise ValueError(f"--limit {arguments.limit}: at least 1, and without --outputs")
    folders = runs_of(arguments.run)
    if arguments.kept:
        return max(_check_kept(folder, changes) for folder in folders)
    if arguments.outputs and len(folders) > 1:
        raise ValueError(f"--outputs takes one run, and {arguments.run} has {len(folders)}")
    found: dict[Path, Mapping[str, Score]] = {}
    for folder in folders:
        fold = folds[-1:] == ["fold=true"]
        run = load(folder, changes, weights=arguments.weights, fold=fold)
        with at_work(f"scoring {folder}"):
            scores = run.evaluate(arguments.split, outputs=arguments.outputs, limit=arguments.limit)
        found[folder] = scores
        _keep(folder / EVAL_FILE, arguments, scores)
    if arguments.json:
        plain = {str(folder): to_builtins(scores) for folder, scores in found.items()}
        print(json.dumps(plain if len(plain) > 1 else plain[str(folders[0])], indent=1))
        return 0
    if len(folders) == 1:
        record = RunStore(folders[0]).read(folders[0]).scores
        _show_one(found[folders[0]], record, arguments.weights)
    else:
        _show_seeds(found)
    what = " ".join(arguments.changes) or "the run's own settings"
    print(f"under {what}; kept in {EVAL_FILE} of the run", file=sys.stderr)
    return 0


def _show_one(
    scores: Mapping[str, Score], record: Mapping[str, Score], weights: str | None
) -> None:
    for name, score in scores.items():
        split, _, own = name.partition("/")
        former = record.get(name if weights is None else f"{split}/{weights}/{own}")
        known = "" if former is None else f"  (record: {former.value:.4g})"
        signature = f"  {score.signature}" if score.signature else ""
        print(f"{name:<18} {score.value:>10.4g}{known}{signature}")


def _show_seeds(found: Mapping[Path, Mapping[str, Score]]) -> None:
    """Print one row per score: its value for each run, and their mean."""
    rows = []
    for name in dict.fromkeys(name for scores in found.values() for name in scores):
        values = [scores[name].value for scores in found.values() if name in scores]
        cells = [f"{s[name].value:.4g}" if name in s else "-" for s in found.values()]
        rows.append([name, *cells, f"{fmean(values):.4g}"])
    columns = ["score", *(folder.name for folder in found), "mean"]
    print_table(columns, rows, numeric=columns[1:])


def _keep(path: Path, arguments: argparse.Namespace, scores: Mapping[str, Score]) -> None:
    """Add a line to the results of a run; the same settings replace their former line."""
    asked = {key: vars(arguments)[key] for key in ("split", "weights", "limit")}
    asked = {"format": "normlab.eval/1", "changes": sorted(arguments.changes), **asked}
    start = json.dumps(asked)[:-1]
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    kept = [line for line in lines if not line.startswith(f"{start}, ")]
    kept.append(json.dumps({**asked, "scores": to_builtins(scores)}))
    with atomic_write(path) as file:
        file.writelines(f"{line}\n" for line in kept)


def _check_kept(run: Path, changes: Sequence[str]) -> int:
    """Print the scores of the kept translations and those of the record; 1 if they differ."""
    from normlab.config.compose import from_dict, to_dict
    from normlab.train.build import build_task
    from normlab.train.loaded import rescored

    record = RunStore(run).read(run)
    differing: list[str] = []
    task = build_task(to_dict(from_dict(record.config, changes)))
    for name, score in rescored(run, task).items():
        if (former := record.scores.get(name)) is None:
            continue
        print(f"{name:<24} {score.value:>10.4f}  (record: {former.value:.4f})  {score.signature}")
        if not isclose(score.value, former.value, rel_tol=1e-9, abs_tol=1e-9):
            differing.append(name)
    for name in differing:
        print(f"{run}: {name} of the kept translations differs from the record", file=sys.stderr)
    return 1 if differing else 0
