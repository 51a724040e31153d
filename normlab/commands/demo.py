"""`normlab demo`: a first table in minutes: LN, BN and no norm on the built-in corpus."""

import shlex
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from normlab.commands._arguments import command_parser
from normlab.records.record import RunRecord
from normlab.records.store import RunStore

_NAMES = {"ln": "LN", "bn": "BN", "none": "no norm"}
_SEEDS = (1, 2)
_SCORE = "test/loss"
# For runs of minutes: a short warm-up, no probes, and a greedily decoded test of few sentences.
_OVERRIDES = (
    *("task=toy", "budget.steps=400", "schedule.warmup=60", "optim.lr=1e-3", "validate.every=400"),
    *("validate.best=false", "task.corpus.valid_size=200", "task.corpus.test_size=200"),
    *("task.test_search.beam=1", "probe=[]", "sink=[console,jsonl]", "observe.study=demo"),
)
_EXAMPLES = """examples:
  normlab demo                        six runs of 400 steps: 3 norms, 2 seeds
  normlab demo budget.steps=1500      longer: any value of `normlab train`

Runs are kept below runs/: the same command shows its table again at once, or resumes after Ctrl-C.
"""


def main(argv: list[str]) -> int:
    """Train the runs as a sweep, show the table, and print what it shows and what to try next."""
    does = "The first table in minutes: LN, BN and no norm on the built-in corpus."
    parser = command_parser("demo", does, _EXAMPLES)
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as of `normlab train`")
    extra = parser.parse_args(argv).overrides
    given = {text.partition("=")[0] for text in extra}
    settings = [*(text for text in _OVERRIDES if text.partition("=")[0] not in given), *extra]
    from normlab.commands.train import main as train
    from normlab.config.compose import compose, to_dict

    print("Six small Transformers learn to translate: three norms, two seeds of each.", flush=True)
    sweep = [f"norm={','.join(_NAMES)}", f"seed={','.join(map(str, _SEEDS))}"]
    status = train(["-m", *sweep, *settings], again=shlex.join(["normlab", "demo", *extra]))
    if status:
        return status
    found: dict[str, list[RunRecord]] = {}
    for norm in _NAMES:
        config = to_dict(compose([f"norm={norm}", *settings]))
        store = RunStore(config["runs_dir"])
        folders = [store.run_dir({**config, "seed": seed}) for seed in _SEEDS]
        found[norm] = [store.read(folder) for folder in folders]
    print(f"\n{sentence(found)}")
    print(f"\nnext:\n  normlab report {shlex.quote(str(store.root))}\n  normlab explain ln bn")
    print("  normlab train norm=bn task=toy budget.steps=1500")
    return 0


def sentence(found: Mapping[str, Sequence[RunRecord]]) -> str:
    """Return a sentence on what the runs' test losses show.

    Two norms differ if all seeds of one are below all seeds of the other.
    """
    scores = {
        norm: [record.scores[_SCORE].value for record in records if record.finished]
        for norm, records in found.items()
    }
    order = sorted((norm for norm in scores if scores[norm]), key=lambda norm: fmean(scores[norm]))
    steps = max(record.outcome.step for records in found.values() for record in records)
    means = ", ".join(f"{_NAMES[norm]} {fmean(scores[norm]):.2f}" for norm in order)
    said = f"Test loss after {steps:,} steps (lower is better): {means}."
    apart = [
        f"{_NAMES[a]} is below {_NAMES[b]}"
        if max(scores[a]) < min(scores[b])
        else f"{_NAMES[a]} and {_NAMES[b]} cannot be told apart"
        for a, b in pairwise(order)
    ]
    if apart:
        said += f" With {len(_SEEDS)} seeds each, {', and '.join(apart)}: a first look, no more."
    lost = [_NAMES[norm] for norm, values in scores.items() if len(values) < len(found[norm])]
    return said + (f" A run of {' and '.join(lost)} diverged." if lost else "")
