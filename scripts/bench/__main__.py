"""`python scripts/bench SUBJECT ...`: measure speed; contenders take turns in one process.

train     steps of training by norm, or with and without probes
norms     norms alone and in a model, batch norm folded: the timings that claims rest on
decode    beam search by norm
peers     other toolkits: see scripts/bench/peers.sh

`SUBJECT --help` describes its options. The ratio to the first contender is what counts. Busy
seconds are processor time, which excludes other programs.
"""

import sys
from importlib import import_module
from pathlib import Path

from normlab.errors import UserError

SUBJECTS = ("train", "norms", "decode", "peers")


def main(argv: list[str]) -> int:
    """Run a benchmark; return 1 after printing a message if a value is wrong."""
    if not argv or argv[0] not in SUBJECTS:
        print(__doc__)
        return 0 if argv in ([], ["--help"], ["-h"]) else 2
    subject, *rest = argv
    place = "bench.peers.run" if subject == "peers" else f"bench.{subject}"
    try:
        return import_module(place).main(rest)
    except UserError as error:
        print(f"bench {subject}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    scripts = Path(__file__).resolve().parents[1]
    sys.path[:0] = [str(scripts), str(scripts.parent)]
    sys.exit(main(sys.argv[1:]))
