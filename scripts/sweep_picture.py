"""Draw the figure of a published sweep: `python scripts/sweep_picture.py`.

It writes `docs/images/batch_size.svg` from the records of the study `batch_size`.
"""

from pathlib import Path

from normlab.publishing.published import read
from normlab.publishing.study_arrangement import study_arrangement
from normlab.reports.figures.drawing import draw, write
from normlab.reports.figures.line_styles import LIGHT, row_styles
from normlab.reports.figures.score_charts import by_axis
from normlab.reports.renaming import with_row_names
from normlab.reports.tables.build_table import build_table
from normlab.studies.load import load_study

ROOT = Path(__file__).parents[1]
PATH = ROOT / "docs" / "images" / "batch_size.svg"


def picture(path: Path = PATH) -> Path:
    """Plot the study's first score over its batch sizes; return the file."""
    runs = read(ROOT / "results" / "batch_size" / "small")
    table = with_row_names(
        study_arrangement(load_study("batch_size"), "small", runs), {}, full=True
    )
    panels = next(iter(by_axis(build_table(table)).values()))
    write(draw(panels[:1], row_styles(table.runs), LIGHT), path, title="BLEU by batch size")
    return path


if __name__ == "__main__":
    print(picture())
