"""`normlab bench bar`: what the bar of a run costs, as a share of the training step."""

import tempfile
from pathlib import Path

from normlab.commands.bench._shared import (
    bench_parser,
    require_positive,
    start_runtime,
    write_json,
)
from normlab.commands.bench.train import add_turns, show

HELP = "training without and with the bar on a terminal, in turns"

_EXAMPLES = """examples:
  normlab bench bar                                  the small model on synthetic text
  normlab bench bar model=tiny --json bar.json       shorter steps, of which it takes more
"""
VARIANTS = {"no bar": False, "bar": True}


def main(argv: list[str]) -> int:
    """Measure, print a table, write JSON where asked."""
    parser = bench_parser("bar", HELP, _EXAMPLES)
    add_turns(parser, steps=50)
    arguments = parser.parse_intermixed_args(argv)
    require_positive(arguments, "threads", "intervals", "steps", "warmup")
    from normlab.bench import train
    from normlab.bench.bar import Shown
    from normlab.bench.work import bench_config

    config = bench_config(arguments.overrides)
    runtime = start_runtime(config, arguments.threads)
    with tempfile.TemporaryDirectory(prefix="normlab-") as folder:
        report = train.measure(
            [
                Shown.of(train.start(name, config, runtime), Path(folder), bar=bar)
                for name, bar in VARIANTS.items()
            ],
            runtime,
            intervals=arguments.intervals,
            steps=arguments.steps,
            warmup=arguments.warmup,
        )
    report["overrides"] = arguments.overrides
    show(report)
    write_json(report, arguments.json)
    return 0
