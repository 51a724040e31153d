"""The figures of a table's runs."""

import pytest

from normlab.reports.figures.drawing import draw, write
from normlab.reports.figures.line_styles import LIGHT, row_styles
from normlab.reports.figures.paper_figures import figures_of
from tests.reports.handmade import SIZES, made, run, sweep


@pytest.mark.parametrize("form", ["svg", "pdf", "png"])
def test_a_score_over_batch_sizes_is_a_figure_in_each_format(form, tmp_path):
    found = [run(made(norm, 1), norm) for norm in ("ln", "bn")]
    (name, title, panels), *others = figures_of(found, sweep(SIZES))
    assert name == "bleu_by_batch_size" and not any(each for *_, each in others)
    path = tmp_path / f"{name}.{form}"
    write(draw(panels, row_styles(found), LIGHT), path, title=title)
    assert path.stat().st_size > 1000


def test_the_figure_of_the_how_to_matches_the_committed_records(tmp_path):
    from scripts.sweep_picture import PATH, picture

    assert picture(tmp_path / "batch_size.svg").read_bytes() == PATH.read_bytes()
