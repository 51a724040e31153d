"""`normlab eval RUN [key=value ...]`: score a finished run again under other settings."""

import argparse
import sys
from pathlib import Path

HELP = "score a finished run again under other settings"

EXAMPLES = """\
examples:
  normlab eval runs/toy-bn-pre-1a2b3c4d5e/seed1
  normlab eval RUN task.test_search.beam=1
  normlab eval RUN norm.eval_stats=batch task.eval_batch_size=8
  normlab eval RUN norm.eval_stats=recalibrated --split valid --json
  normlab eval RUN fold=true                     # batch norm inside the products beside it
"""


def main(argv: list[str]) -> int:
    """Load the run with the changes, score the split, print the scores beside the record's."""
    parser = argparse.ArgumentParser(
        "normlab eval",
        description=HELP,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", type=Path, help="a run folder, such as runs/toy-ln-pre-.../seed1")
    parser.add_argument(
        "changes", nargs="*", metavar="key=value", help="settings that replace the run's"
    )
    parser.add_argument("--split", default="test", help="the split to score (default: test)")
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    parser.add_argument("--outputs", type=Path, help="write the model's outputs to this file")
    arguments = parser.parse_intermixed_args(argv)

    from normlab.loaded import load_run

    changes = [change for change in arguments.changes if not change.startswith("fold=")]
    run = load_run(arguments.run, changes, fold=_fold(arguments.changes))
    scores = run.evaluate(arguments.split, outputs=arguments.outputs)
    if arguments.json:
        import json
        from dataclasses import asdict

        print(json.dumps({name: asdict(score) for name, score in scores.items()}, indent=1))
        return 0
    for name, score in scores.items():
        former = run.record.scores.get(name)
        beside = "" if former is None else f"  (record: {former.value:.4g})"
        signature = f"  {score.signature}" if score.signature else ""
        print(f"{name:<18} {score.value:>10.4g}{beside}{signature}")
    if arguments.changes:
        print(f"under {' '.join(arguments.changes)}; the record is left as it is", file=sys.stderr)
    return 0


def _fold(changes: list[str]) -> bool:
    """Tell whether to fold norms, the one setting that is not of the run's config."""
    values = [change.removeprefix("fold=") for change in changes if change.startswith("fold=")]
    for value in values:
        if value not in ("true", "false"):
            raise ValueError(f"fold={value}: it is true or false")
    return values[-1:] == ["true"]
