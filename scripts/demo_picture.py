"""Draw docs/images/demo.svg and demo-dark.svg, README's figure, from the runs of `normlab demo`.

    normlab demo && python scripts/demo_picture.py

The runs are read from demo/, or from the folder given as an argument. There must be one per norm.
"""

import sys
from dataclasses import replace
from pathlib import Path

from normlab.errors import UserError
from normlab.records.packed import Key
from normlab.reports.figures.drawing import draw, write
from normlab.reports.figures.line_styles import DARK, LIGHT, row_styles
from normlab.reports.figures.paper_figures import KINDS
from normlab.reports.runs import Run, read_runs

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
NAMES = {"ln": "layer norm", "none": "no norm", "bn": "batch norm"}


def demo_runs(folder: Path) -> list[Run]:
    """Return the demo's run of each norm. Raise UserError if a norm has no run, or several."""
    found, _ = read_runs([folder])
    runs: list[Run] = []
    for norm, name in NAMES.items():
        of_norm = [
            run
            for run in found
            if run.norm == norm and run.settings["observe"].get("study") == "demo"
        ]
        if not of_norm:
            raise UserError(f"{folder} has no run of the demo with norm={norm}; run normlab demo")
        if len(of_norm) > 1:
            raise UserError(
                f"{folder} has {len(of_norm)} runs of the demo with norm={norm}; pass a folder "
                "with one, as after normlab demo runs_dir=FOLDER"
            )
        runs.append(replace(of_norm[0], key=Key(name, "", 1)))
    return runs


if __name__ == "__main__":
    try:
        runs = demo_runs(Path(next(iter(sys.argv[1:]), "demo")))
    except UserError as error:
        sys.exit(str(error))
    for name, theme in (("demo.svg", LIGHT), ("demo-dark.svg", DARK)):
        drawn = draw(KINDS["loss"].panels(runs), row_styles(runs), theme)
        write(drawn, IMAGES / name, title="Loss of layer norm, no norm and batch norm")
