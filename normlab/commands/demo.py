"""`normlab demo`: the first table, in minutes: LN, BN and no norm on the built-in corpus."""

import shlex
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from normlab.commands._arguments import command_parser
from normlab.records.record import RunRecord
from normlab.records.store import RunStore

_NAMES = {"ln": "LN", "bn": "BN", "none": "no norm"}
_SEEDS = (1, 2)
_SCORE = "test/loss"
# Runs of minutes: a warm-up that ends, no probes, a test of few sentences decoded greedily.
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
    """Train the runs as a sweep, show the table, say what it shows, and what to type next."""
    does = "The first table in minutes: LN, BN and no norm on the built-in corpus."
    parser = command_parser("demo", does, _EXAMPLES)
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as of `normlab train`")
    extra = parser.parse_args(argv).overrides
    given = {text.partition("=")[0] for text in extra}
    settings = [*(text for text in _OVERRIDES if text.partition("=")[0] not in given), *extra]
    from normlab.commands.train import main as train

    print("Six small Transformers learn to translate: three norms, two seeds of each.", flush=True)
    sweep = [f"norm={','.join(_NAMES)}", f"seed={','.join(map(str, _SEEDS))}"]
    status = train(["-m", *sweep, *settings], again=shlex.join(["normlab", "demo", *extra]))
    if status:
        return status
    found = {norm: _records(norm, settings) for norm in _NAMES}
    folder = shlex.quote(str(found["bn"][0][0]))
    print(f"\n{sentence({norm: [record for _, record in of] for norm, of in found.items()})}")
    print(f"\nnext:\n  normlab report {folder}\n  normlab explain ln bn")
    print("  normlab train norm=bn task=toy budget.steps=1500")
    return 0


def _records(norm: str, settings: Sequence[str]) -> list[tuple[Path, RunRecord]]:
    """Return the folder and the record of each seed."""
    from normlab.config.compose import compose, to_dict

    config = to_dict(compose([f"norm={norm}", *settings]))
    store = RunStore(config["runs_dir"])
    folders = [store.run_dir({**config, "seed": seed}) for seed in _SEEDS]
    return [(folder, store.read(folder)) for folder in folders]


def sentence(found: Mapping[str, Sequence[RunRecord]]) -> str:
    """Say in a sentence or two what the runs show, by the test loss, from the numbers alone.

    Two norms are told apart where no seed of one comes between the seeds of the other.
    """
    scores = {
        norm: [record.scores[_SCORE].value for record in records if record.finished]
        for norm, records in found.items()
    }
    lost = [_NAMES[norm] for norm, values in scores.items() if len(values) < len(found[norm])]
    order = sorted((norm for norm in scores if scores[norm]), key=lambda norm: fmean(scores[norm]))
    steps = max(record.outcome.step for records in found.values() for record in records)
    parts = [f"{_NAMES[norm]} {fmean(scores[norm]):.2f}" for norm in order]
    said = [f"Test loss after {steps:,} steps, the lower the better: {', '.join(parts)}."]
    apart = [
        f"{_NAMES[a]} is below {_NAMES[b]}"
        if max(scores[a]) < min(scores[b])
        else f"{_NAMES[a]} and {_NAMES[b]} cannot be told apart"
        for a, b in pairwise(order)
    ]
    if apart:
        seeds = f"By {len(_SEEDS)} seeds of each "
        said.append(f"{seeds}{', and '.join(apart)}: a first look, no more.")
    if lost:
        said.append(f"A run of {' and '.join(lost)} diverged.")
    return " ".join(said)
