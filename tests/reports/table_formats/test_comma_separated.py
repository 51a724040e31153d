"""A table as CSV."""

import csv
import io

import pytest

from normlab.reports.table_formats.comma_separated import comma_separated
from tests.reports.handmade import (
    BLEU,
    entry,
    table,
)

FIGURES = {"ln": {BLEU: 35.2, "stability": "stable"}, "bn": {BLEU: "no BLEU"}}

VALUES = {
    "ln": [30.0, 30.1, 30.2, 30.1, 30.1],
    "bn": [20.0, 20.2, 20.4, 20.2, 20.2],
    "gn": [None],
}


def test_csv_values_agree_to_eleven_digits():
    found = table(VALUES, article_values=FIGURES)
    rows = list(csv.DictReader(io.StringIO(comma_separated(found))))
    bn, bleu = rows[2], entry(found, "bn")
    assert float(bn["mean"]) == bleu.summary.mean
    exact = [bleu.summary.sd, bleu.difference.mean, bleu.difference.low, bleu.p]
    names = ("sd", "difference", "low", "p")
    assert [float(bn[name]) for name in names] == pytest.approx(exact, rel=1e-11)


def test_a_difference_without_an_interval_is_in_its_column():
    text = comma_separated(table({"ln": [30.0, 30.5], "bn": [28.0, 28.5]}))
    bn = list(csv.DictReader(io.StringIO(text)))[2]
    assert (bn["difference"], bn["low"], bn["high"], bn["p"]) == ("-2.0", "", "", "")


def test_csv_has_a_line_for_each_row_and_score_with_its_seeds():
    rows = list(csv.DictReader(io.StringIO(comma_separated(table(VALUES, article_values=FIGURES)))))
    ln, _, bn = rows[:3]
    assert [row["setting"] for row in rows] == ["ln", "ln", "bn", "bn", "gn", "gn"]
    assert (ln["best"], ln["article"], ln["difference"]) == ("1", "35.2", "")
    assert (bn["n"], bn["seeds"], bn["outcome"]) == ("5", "1 2 3 4 5", "finished 5/5")
    assert bn["stability"] == "finished 5/5; diverged 0; median spikes 0"
    assert (rows[-1]["mean"], rows[-1]["n"], rows[-1]["outcome"]) == ("", "0", "not run")


def test_a_difference_has_the_number_and_the_seeds_of_its_pairs():
    """The mean of `bn` is over four seeds, of which layer norm has two."""
    found = table({"ln": [30.0, None, 30.5, None], "bn": [28.0, 27.0, 28.7, 26.0], "gn": [None]})
    rows = [*csv.DictReader(io.StringIO(comma_separated(found)))]
    ln, bn, gn = rows[0], rows[2], rows[4]
    assert (bn["n"], bn["seeds"], bn["pairs"], bn["paired_seeds"]) == ("4", "1 2 3 4", "2", "1 3")
    assert (ln["pairs"], ln["paired_seeds"]) == (gn["pairs"], gn["paired_seeds"]) == ("", "")
