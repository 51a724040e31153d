"""`normlab eval RUN [key=value ...]`: score a finished run again under other settings."""

import argparse
import sys
from pathlib import Path

from normlab.commands._at_work import at_work
from normlab.commands._help import HelpFormatter
from normlab.commands._paths import as_path
from normlab.commands._runs import load

HELP = "score a finished run again under other settings"

EXAMPLES = """\
examples:
  normlab eval runs/toy-bn-pre-1a2b3c4d5e/seed1
  normlab eval RUN task.test_search.beam=1
  normlab eval RUN norm.eval_stats=batch task.eval_batch_size=8
  normlab eval RUN norm.eval_stats=recalibrated --split valid --json
  normlab eval RUN "observe.test_noise=[0.4]"    # also with noise on the input
  normlab eval RUN fold=true                     # batch norm inside the products beside it
  normlab eval RUN --weights best_loss           # others than those that were tested
  normlab eval results/STUDY/SCALE/records/LABEL/seed1 --kept data_dir=FOLDER
"""


def main(argv: list[str]) -> int:
    """Load the run with the changes, score the split, print the scores beside the record's."""
    parser = argparse.ArgumentParser(
        "normlab eval",
        description=HELP,
        epilog=EXAMPLES,
        formatter_class=HelpFormatter,
    )
    parser.add_argument("run", type=as_path, help="a run folder, such as runs/toy-ln-pre-.../seed1")
    parser.add_argument(
        "changes", nargs="*", metavar="key=value", help="settings that replace the run's"
    )
    parser.add_argument("--split", default="test", help="the split to score (default: test)")
    parser.add_argument(
        "--kept",
        action="store_true",
        help="score the translations kept beside the record, and compare with it; 1 if one differs",
    )
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    parser.add_argument("--outputs", type=as_path, help="write the model's outputs to this file")
    parser.add_argument(
        "--weights",
        metavar="NAME",
        help="last, average, best_loss, best_<score>; default: those that were tested",
    )
    arguments = parser.parse_intermixed_args(argv)

    changes = [change for change in arguments.changes if not change.startswith("fold=")]
    if arguments.kept:
        return _check_kept(arguments.run, changes)
    fold = _fold(arguments.changes)
    run = load(arguments.run, changes, weights=arguments.weights, fold=fold)
    with at_work(f"scoring {arguments.run}"):
        scores = run.evaluate(arguments.split, outputs=arguments.outputs)
    if arguments.json:
        import json
        from dataclasses import asdict

        print(json.dumps({name: asdict(score) for name, score in scores.items()}, indent=1))
        return 0
    for name, score in scores.items():
        former = run.record.scores.get(_path(name, arguments.weights))
        beside = "" if former is None else f"  (record: {former.value:.4g})"
        signature = f"  {score.signature}" if score.signature else ""
        print(f"{name:<18} {score.value:>10.4g}{beside}{signature}")
    if arguments.changes:
        print(f"under {' '.join(arguments.changes)}; the record is left as it is", file=sys.stderr)
    return 0


def _path(name: str, weights: str | None) -> str:
    """Return where the record has a score of these weights, beside those that were tested."""
    split, _, score = name.partition("/")
    return name if weights is None else f"{split}/{weights}/{score}"


def _check_kept(run: Path, changes: list[str]) -> int:
    """Print the scores of the kept translations beside the record's; 1 where they differ."""
    from math import isclose

    from normlab.build import build_task
    from normlab.config import from_dict, to_dict
    from normlab.loaded import rescored
    from normlab.records.store import RunStore

    record = RunStore(run).read(run)
    scores = rescored(run, build_task(to_dict(from_dict(record.config, changes))))
    differing: list[str] = []
    for name, score in scores.items():
        former = record.scores.get(name)
        if former is None:
            continue
        print(f"{name:<24} {score.value:>10.4f}  (record: {former.value:.4f})  {score.signature}")
        if not isclose(score.value, former.value, rel_tol=1e-9, abs_tol=1e-9):
            differing.append(name)
    for name in differing:
        print(f"{run}: {name} of the kept translations is not that of the record", file=sys.stderr)
    return 1 if differing else 0


def _fold(changes: list[str]) -> bool:
    """Tell whether to fold norms, the one setting that is not of the run's config."""
    values = [change.removeprefix("fold=") for change in changes if change.startswith("fold=")]
    for value in values:
        if value not in ("true", "false"):
            raise ValueError(f"fold={value}: it is true or false")
    return values[-1:] == ["true"]
