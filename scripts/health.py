"""Set health sheets side by side: `python scripts/health.py FOLDER RECORDS`.

FOLDER holds sheets of `normlab inspect` (`*.json`) of one task; the records of their runs are below
RECORDS. Writes FOLDER/table.md, as `normlab report` does for those of results/health.
"""

import sys
from pathlib import Path

from normlab.records.files import atomic_write
from normlab.reports.pages import health_table

if __name__ == "__main__":
    place, runs = map(Path, sys.argv[1:])
    with atomic_write(place / "table.md") as file:
        file.write(health_table(place, runs))
