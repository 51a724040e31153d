#!/usr/bin/env bash
# Build the pages of docs/ as a site, strictly: a broken link or page fails.
#   bash scripts/docs.sh [FOLDER]     into site/ by default; open FOLDER/index.html
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/environment.sh docs
out=$(realpath -m "${1:-site}")
NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --quiet --strict -f docs/site/mkdocs.yml -d "$out"
echo "$out/index.html"
