"""`normlab demo`: a first table in minutes: LN, BN and no norm on the built-in corpus."""

import shlex

from normlab.commands._arguments import command_parser
from normlab.config.suggest import typed

# For runs of minutes: a short warm-up, no probes, and a greedily decoded test of few sentences.
_OVERRIDES = (
    *("norm=ln,bn,none", "seed=1,2", "task=toy", "budget.steps=400", "schedule.warmup=60"),
    *("optim.lr=1e-3", "validate.every=400", "validate.best=false"),
    *("task.corpus.valid_size=200", "task.corpus.test_size=200"),
    *("task.test_search.beam=1", "probe=[]", "sink=[console,jsonl]", "observe.study=demo"),
)
_EXAMPLES = """examples:
  normlab demo                     six runs of 400 steps: 3 norms x 2 seeds
  normlab demo budget.steps=1500   longer; takes all settings of normlab train

Runs are kept below runs/. The same command prints the table again, or resumes after Ctrl-C.
"""


def main(argv: list[str]) -> int:
    """Train the runs as a sweep, show their table, and print what to try next."""
    does = "Make a first table in minutes: LN, BN and no norm on the built-in corpus."
    parser = command_parser("demo", does, _EXAMPLES)
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as for `normlab train`")
    extra = parser.parse_args(argv).overrides
    given = typed(extra)
    settings = [*(text for text in _OVERRIDES if text.partition("=")[0] not in given), *extra]
    from normlab.commands.train import main as train

    print("Training six small Transformers to translate: three norms, two seeds each.", flush=True)
    status = train(["-m", *settings], again=shlex.join(["normlab", "demo", *extra]))
    if not status:
        runs = shlex.quote(given.get("runs_dir", "runs"))
        print(f"\nnext:\n  normlab report {runs}\n  normlab explain ln bn")
        print("  normlab train norm=bn task=toy budget.steps=1500")
    return status
