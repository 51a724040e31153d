#!/usr/bin/env bash
# Attack command lines, records, run folders and runs at random, and write results/faults.md.
#   bash scripts/faults.sh [--hours 1] [--seed 2] [--report FILE]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PYTHONPATH=$PWD exec .venv/bin/python -m tests.faults.run "$@"
