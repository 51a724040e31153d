#!/usr/bin/env bash
# Install what the tests need into .venv and pass them: lint, types, published tables, tests.
#   bash scripts/test.sh [pytest arguments]      NORMLAB_DATA=FOLDER adds the tests on real data
#   bash scripts/test.sh --quick                 lint and the fast folders below, in 90 seconds
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
unset PYTHONDONTWRITEBYTECODE  # many tests start Python: it need not compile the package each time
quick="tests/test_architecture.py tests/config/test_registry.py tests/config/test_run_config.py"
quick+=" tests/norms tests/records tests/metrics"
if [ "${1:-}" = --quick ]; then
    shift
    .venv/bin/ruff check .
    exec .venv/bin/pytest -n 2 -q $quick -k "not compile" "$@"
fi
bash scripts/environment.sh dev
.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/pyright --pythonpath .venv/bin/python
.venv/bin/normlab study verify
.venv/bin/normlab claims --verify
.venv/bin/pytest -n 2 "$@"
