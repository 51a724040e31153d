"""Fallback fonts of figures, and names whose characters are in no installed font."""

import pytest

from normlab.reports.arrangement.unplanned import arrange
from normlab.reports.figures import fonts
from normlab.reports.figures.drawing import draw, write
from normlab.reports.figures.line_styles import LIGHT, row_styles
from normlab.reports.figures.paper_figures import KINDS
from normlab.reports.runs import unplaced_run
from tests.records.examples import record


def drawn(norm):
    """Return a figure of the loss of a run, whose legend has the name of its norm."""
    rows = [{"step": 10, "train/loss": 5.0}]
    runs = arrange([unplaced_run(None, record(norm=norm), rows)]).runs
    return draw(KINDS["loss"].panels(runs), row_styles(runs), LIGHT)


def test_only_installed_fonts_are_fallbacks(monkeypatch):
    monkeypatch.setattr(fonts, "FALLBACKS", ("No Such Font", "STIXGeneral"))
    assert fonts.font_families() == ["sans-serif", "STIXGeneral"]
    (legend,) = drawn("bn").legends
    assert legend.get_texts()[0].get_fontfamily() == ["sans-serif", "STIXGeneral"]


@pytest.mark.filterwarnings("error")
def test_a_name_whose_characters_are_in_no_font_is_returned_without_warnings(monkeypatch, tmp_path):
    monkeypatch.setattr(fonts, "FALLBACKS", ())
    assert write(drawn("批归一化"), tmp_path / "loss.svg", title="loss") == ("批归一化",)
    assert write(drawn("bn"), tmp_path / "loss.svg", title="loss") == ()
