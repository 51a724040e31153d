"""Draw docs/images/demo.svg and demo-dark.svg, README's figure, from the runs of `normlab demo`.

    normlab demo && python scripts/demo_picture.py

The runs are read from runs/, or from the folder given as an argument.
"""

import sys
from dataclasses import replace
from pathlib import Path

from normlab.records.packed import Key
from normlab.reports.figures.drawing import draw, write
from normlab.reports.figures.line_styles import DARK, LIGHT, row_styles
from normlab.reports.figures.paper_figures import KINDS
from normlab.reports.runs import read_runs

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
NAMES = {"ln": "layer norm", "none": "no norm", "bn": "batch norm"}

if __name__ == "__main__":
    found, _ = read_runs([Path(next(iter(sys.argv[1:]), "runs"))])
    of = {run.norm: run for run in found if run.settings["observe"]["study"] == "demo"}
    runs = [replace(of[norm], key=Key(name, "", 1)) for norm, name in NAMES.items()]
    for name, theme in (("demo.svg", LIGHT), ("demo-dark.svg", DARK)):
        drawn = draw(KINDS["loss"].panels(runs), row_styles(runs), theme)
        write(drawn, IMAGES / name, title="Loss of layer norm, no norm and batch norm")
