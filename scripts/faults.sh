#!/usr/bin/env bash
# Attack command lines, files, archives, and every command that writes, and write results/faults.md.
#   bash scripts/faults.sh --hours 1                   rounds until the time is over
#   bash scripts/faults.sh --volume --hours 9 --state FILE   ten rounds of each; again: goes on
#   more: --seed 2, --report FILE, --parts kills writes ...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PYTHONPATH=$PWD exec .venv/bin/python -m tests.faults.run "$@"
