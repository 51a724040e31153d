#!/usr/bin/env bash
# First contact: install normlab into .venv, then its demo: LN, BN and no norm on the built-in
# translation corpus. No data, no network beyond the package index; a few minutes on two cores.
#   bash scripts/quickstart.sh [overrides ...]     for example: bash scripts/quickstart.sh budget.steps=2000
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/environment.sh
.venv/bin/normlab demo "$@"
