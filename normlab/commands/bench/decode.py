"""`normlab bench decode`: sentences a second of beam search."""

from collections.abc import Mapping
from typing import Any

from normlab.commands._terminal import print_table
from normlab.commands.bench._shared import (
    add_overrides,
    bench_parser,
    machine,
    require_positive,
    spread_cells,
    start_runtime,
    write_json,
)

HELP = "sentences a second of beam search, by norm"

_EXAMPLES = """examples:
  normlab bench decode                                      beam 5, 32 sentences, 31 tokens each
  normlab bench decode --norms ln,bn,none
  normlab bench decode task.test_search.beam=1 model=iwslt
"""


def main(argv: list[str]) -> int:
    """Measure, print a table, write JSON where asked."""
    parser = bench_parser("decode", HELP, _EXAMPLES)
    add_overrides(parser)
    parser.add_argument("--norms", help="norms to compare in one process, as ln,bn,rms")
    parser.add_argument("--batches", type=int, default=6, help="decoded in a round; default: 6")
    parser.add_argument("--sentences", type=int, default=32, help="of a batch; default: 32")
    parser.add_argument("--length", type=int, default=31, help="of hypotheses; default: 31 tokens")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    arguments = parser.parse_intermixed_args(argv)
    require_positive(arguments, "threads", "batches", "sentences", "length", "rounds")
    from normlab.bench import decode
    from normlab.bench.work import bench_config

    names = arguments.norms.split(",") if arguments.norms else [None]
    configs = [
        bench_config([*arguments.overrides, *([] if name is None else [f"norm={name}"])])
        for name in names
    ]
    runtime = start_runtime(configs[0], arguments.threads)
    decoders = [
        decode.start(
            config["choices"]["norm"] or "none",
            config,
            runtime,
            batches=arguments.batches,
            sentences=arguments.sentences,
            length=arguments.length,
        )
        for config in configs
    ]
    report = decode.measure(decoders, runtime, rounds=arguments.rounds)
    report["overrides"] = arguments.overrides
    show(report)
    write_json(report, arguments.json)
    return 0


def show(report: Mapping[str, Any]) -> None:
    """Print a report."""
    rows = [
        [
            run["name"],
            *spread_cells(run["sentences_per_second"], run["sentences_per_busy_second"], ".1f"),
            f"{run['ratio_to_first']:.3f}",
        ]
        for run in report["runs"]
    ]
    run = report["runs"][0]
    notes = [
        machine(report["environment"]),
        f"beam {run['beam']}, batches of {run['sentences_per_batch']} sentences, every hypothesis "
        f"{run['hypothesis_tokens']} tokens; median of {run['sentences_per_second']['n']} rounds "
        f"of {run['sentences']} sentences",
        f"memory {report['peak_memory_bytes'] / 2**30:.2f} GiB at most",
    ]
    columns = ["run", "sentences/s", "range", "sentences/busy s", "to first"]
    print_table(columns, rows, notes=notes, numeric=columns[1:])
