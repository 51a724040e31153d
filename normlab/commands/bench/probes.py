"""`normlab bench probes`: what probes cost, as a share of the training step."""

from normlab.commands.bench._shared import bench_parser
from normlab.commands.bench.train import add_turns, measure

HELP = "no probe, the default set and every probe, training in turns"

_EXAMPLES = """examples:
  normlab bench probes norm=bn
  normlab bench probes norm=ln --steps 100 --json probes.json
"""
VARIANTS = {"no probe": ["probe=[]"], "default": [], "full": ["probe=full"]}


def main(argv: list[str]) -> int:
    """Measure, print a table, write JSON where asked."""
    parser = bench_parser("probes", HELP, _EXAMPLES)
    add_turns(parser, steps=50)  # so that all of them look at least once
    return measure(parser.parse_intermixed_args(argv), VARIANTS)
