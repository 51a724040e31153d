#!/usr/bin/env bash
# Make .venv with Python 3.11+ and install normlab into it, editable, with the extras given:
#   bash scripts/environment.sh [EXTRAS]      for example: bash scripts/environment.sh dev
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
extras=${1:+[$1]}
python=${PYTHON:-}
for candidate in ${python:-python3 python3.13 python3.12 python3.11}; do
  if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python=$candidate; break; fi
done
if [ -z "$python" ]; then
  echo "normlab needs Python 3.11 or newer: install it, or name it by PYTHON=/path/to/python3" >&2
  exit 1
fi
[ -x .venv/bin/python ] || "$python" -m venv .venv
.venv/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".$extras"
