import itertools
import re
import subprocess
import sys

import matplotlib
import pytest
from matplotlib.colors import to_rgb

from normlab.reports.figures import style
from normlab.reports.figures.kinds import KINDS
from normlab.reports.figures.runs import experiments
from tests.reports.curves import by_layer, loss_rows, run

ROWS = loss_rows({10: 50.0, 20: 0.00002, 30: 3.0}, spikes=(30,))


def write(path, theme=style.LIGHT):
    drawn = KINDS["loss"].draw(experiments([run(ROWS), run(ROWS, norm="bn")]), theme)
    style.write(drawn, path, title="Loss")
    return path.read_bytes()


@pytest.mark.parametrize("form", ["svg", "png"])
def test_the_bytes_are_the_same_each_time_and_of_the_dark_variant_others(tmp_path, form):
    first = write(tmp_path / f"a.{form}")
    assert write(tmp_path / f"b.{form}") == first
    assert write(tmp_path / f"c.{form}", style.DARK) != first
    assert first.startswith(b"<?xml" if form == "svg" else b"\x89PNG")


def test_an_svg_says_no_date_and_no_version_and_needs_no_font(tmp_path):
    text = write(tmp_path / "a.svg").decode()
    assert "dc:date" not in text
    assert matplotlib.__version__ not in text
    assert "<text" not in text
    assert "<dc:title>Loss</dc:title>" in text
    assert style.LIGHT.paper in text and style.DARK.paper not in text


SCRIPT = """
import hashlib, sys
from pathlib import Path
from tests.reports.test_figures_style import write
print(hashlib.sha256(write(Path(sys.argv[1]))).hexdigest())
"""


def test_another_process_with_settings_of_its_own_writes_the_same_bytes(tmp_path):
    import hashlib

    (tmp_path / "matplotlibrc").write_text("axes.facecolor: red\nfont.size: 20\nlines.marker: x\n")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "other.svg")],
        capture_output=True,
        text=True,
        env={
            "PATH": "",
            "PYTHONPATH": ":".join(filter(None, sys.path)),
            "PYTHONHASHSEED": "7",
            "MATPLOTLIBRC": str(tmp_path),
            "MPLCONFIGDIR": str(tmp_path),
        },
        check=False,
    )
    assert done.returncode == 0, done.stderr
    own = hashlib.sha256(write(tmp_path / "own.svg")).hexdigest()
    assert done.stdout.strip() == own


def test_drawing_leaves_matplotlibs_settings_alone():
    before = dict(matplotlib.rcParams)
    KINDS["gradient_by_layer"].draw(
        experiments([run(stability=by_layer("stability/gradients/norm"))]), style.LIGHT
    )
    assert dict(matplotlib.rcParams) == before


def luminance(colour):
    parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), parts, strict=True))


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", style.THEMES, ids=lambda theme: theme.name)
def test_lines_and_letters_stand_out_from_the_paper(theme):
    # WCAG 2.1: 3 for graphics, 4.5 for text.
    assert all(contrast(hue, theme.paper) >= 3 for hue in theme.hues)
    assert contrast(theme.ink, theme.paper) >= 4.5
    assert contrast(theme.quiet, theme.paper) >= 4.5
    assert len(set(theme.hues)) == len(theme.hues)


def test_28_lines_look_different():
    looks = [style.line(style.LIGHT, number) for number in range(28)]
    for a, b in itertools.combinations(looks, 2):
        assert (a.hue, str(a.stroke)) != (b.hue, str(b.stroke))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.003, "0.003"),
        (2.0, "2"),
        (5000.0, "5,000"),
        (1e-5, "$10^{-5}$"),
        (2.5e-4, r"$2.5\cdot10^{-4}$"),
        (3e6, r"$3\cdot10^{6}$"),
    ],
)
def test_ticks_are_short(value, text):
    assert style._plain(value, None) == text


def test_values_that_hardly_differ_do_not_fill_the_axis():
    rows = loss_rows({10: 3.0, 20: 3.0001})
    (axes,) = KINDS["loss"].draw(experiments([run(rows)]), style.LIGHT).axes
    low, high = axes.get_ylim()
    assert high - low > 0.1
    assert all(re.fullmatch(r"\d\.\d+", text.get_text()) for text in axes.get_yticklabels())
