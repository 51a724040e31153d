"""The entries of a table: values and differences as text."""

import math

import pytest

from normlab.reports.table_formats.markdown import markdown_table
from tests.reports.handmade import BLEU, build, runs, study

STEPS = "valid/steps_to/bleu_20"


@pytest.mark.parametrize(
    ("values", "score", "text"),
    [
        ({"ln": [math.nan]}, BLEU, "nan"),
        (
            {"ln": [1.0, 2.0], "bn": [3.0, 4.001]},
            BLEU,
            "3.50 +- 0.71<br>(+2.00 [+1.99, +2.01], p < 0.001)",
        ),
        ({"ln": [1.0, 2.0], "bn": [3.0, 4.0]}, BLEU, "3.50 +- 0.71<br>(+2.00)"),
        ({"ln": [math.inf, math.inf]}, STEPS, "not reached"),
        ({"ln": [math.inf, 100.0, 200.0]}, STEPS, "reached 2/3"),
        ({"ln": [100.0, 300.0]}, STEPS, "200 +- 141"),
        ({"ln": [math.inf, 20.0]}, "test/perplexity", "inf"),
    ],
)
def test_a_cell_shows_nan_and_how_many_runs_reached_a_target(values, score, text):
    found = build(study(columns=(score,)), runs(values, score))
    assert markdown_table(found).split("\n\n")[1].splitlines()[-1].split(" | ")[2] == text
