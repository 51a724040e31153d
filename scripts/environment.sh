#!/usr/bin/env bash
# Make .venv with Python 3.11+ and install normlab into it, editable, with the extras given:
#   bash scripts/environment.sh [EXTRAS]      for example: bash scripts/environment.sh dev
#   bash scripts/environment.sh ray           makes .venv-ray, a separate environment
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
extras=${1:+[$1]} venv=.venv constraints=constraints.txt
python=${PYTHON:-}
for candidate in ${python:-python3 python3.13 python3.12 python3.11}; do
  if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python=$candidate; break; fi
done
if [ -z "$python" ]; then
  echo "normlab needs Python 3.11 or newer: install it, or name it by PYTHON=/path/to/python3" >&2
  exit 1
fi
[ "${1:-}" != ray ] || venv=.venv-ray
[ -x $venv/bin/python ] || "$python" -m venv $venv
if [ "${1:-}" = ray ]; then  # its launcher needs older versions of these than everything else
  constraints=$venv/constraints.txt
  grep -vE '^(cloudpickle|joblib|python-dateutil)==' constraints.txt > $constraints
fi
$venv/bin/pip install --quiet --disable-pip-version-check -c $constraints -e ".$extras"
