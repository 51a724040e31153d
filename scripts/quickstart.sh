#!/usr/bin/env bash
# Install normlab into .venv and run its demo: how LN, BN and no norm differ, on the
# built-in translation corpus. No data, no network beyond the package index; six minutes on two cores.
#   bash scripts/quickstart.sh [deep] [key=value ...]     for example: bash scripts/quickstart.sh deep
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/environment.sh
.venv/bin/normlab demo "$@"
