"""Fixed bytes of Markdown, LaTeX and CSV, from fixed records."""

import csv
import io
import math

import pytest

from normlab.reports.render import comma_separated, figure, latex, markdown
from normlab.reports.table import build
from tests.records.examples import SIGNATURE
from tests.reports.tables import made, planned, runs, study

STEPS = "valid/steps_to/bleu_20"
MARKDOWN = f"""\
**Translation (D0), scale=smoke**

| setting | at | test/bleu | valid/loss | outcome |
| --- | --- | --- | --- | --- |
| ln | - | **30.10 +- 0.10**<br>document: 35.2 (-5.10) | - | finished 3/3 |
| bn | - | 20.20 +- 0.20<br>(-9.90 [-10.15, -9.65], p < 0.001)<br>document: no BLEU | - | finished 3/3 |
| gn | - | - | - | no run |

- data: None; fp32 on None; 100 updates
- mean +- standard deviation over the seeds that finished; in brackets the difference to ln at the \
same point, paired by seed, with its 95 % t interval and p value
- bold: all seeds finished and better than every other row at its point, each interval leaving out zero
- document: what D0 says, at its own size and data
- test/bleu: {SIGNATURE}
"""  # noqa: E501
LATEX = r"""\begin{table}
\centering
\caption{Translation (D0), scale=smoke}
\begin{tabular}{llrrl}
\toprule
setting & at & test/bleu & valid/loss & outcome \\
\midrule
ln & - & \shortstack[r]{\textbf{30.10 $\pm$ 0.10}\\{\scriptsize document: 35.2 (-5.10)}} & - & finished 3/3 \\
bn & - & \shortstack[r]{20.20 $\pm$ 0.20\\{\scriptsize -9.90 [-10.15, -9.65], p $<$ 0.001}\\{\scriptsize document: no BLEU}} & - & finished 3/3 \\
gn & - & - & - & no run \\
\bottomrule
\end{tabular}
\end{table}
"""  # noqa: E501


@pytest.fixture
def table():
    figures = {"ln": {"test/bleu": 35.2}, "bn": {"test/bleu": "no BLEU"}}
    values = {"ln": [30.0, 30.1, 30.2], "bn": [20.0, 20.2, 20.4], "gn": [None]}
    return build(study(figures=figures), "smoke", runs(values))


def shown(values, score="test/bleu", **changes):
    """Return the cell of the last row in Markdown."""
    found = build(study(columns=(score,), **changes), "smoke", runs(values, score))
    return markdown(found).split("\n\n")[1].splitlines()[-1].split(" | ")[2]


def test_markdown(table):
    assert markdown(table) == MARKDOWN


def test_latex(table):
    text = latex(table)
    assert text.startswith(LATEX)
    comments = text.removeprefix(LATEX).splitlines()
    assert len(comments) == 5 and all(line.startswith("% ") for line in comments)


def test_csv_has_full_precision(table):
    rows = list(csv.DictReader(io.StringIO(comma_separated(table))))
    ln, _, bn = rows[:3]
    assert [row["setting"] for row in rows] == ["ln", "ln", "bn", "bn", "gn", "gn"]
    bleu = table.rows[1].entries["test/bleu"]
    assert (float(bn["mean"]), float(bn["sd"])) == (bleu.summary.mean, bleu.summary.sd)
    assert float(bn["low"]) == bleu.difference.low and float(bn["p"]) == bleu.p
    assert (ln["best"], ln["document"], ln["difference"]) == ("1", "35.2", "")
    assert (bn["n"], bn["seeds"], bn["outcome"]) == ("3", "1 2 3", "finished 3/3")
    assert (rows[-1]["mean"], rows[-1]["n"], rows[-1]["outcome"]) == ("", "0", "no run")
    header = "setting,at,score,mean,sd,n,seeds,difference,low,high,p,document,best,outcome\n"
    assert comma_separated(table).startswith(header)


def test_latex_special_characters_are_escaped():
    names = {"a_b & c%": ("norm=ln",), "$x^2 #1~{y}\\": ("norm=bn",)}
    point = "a<b|c>d"
    records = [(planned(n, 1, point), made("ln", 1, {"test/bleu_tok": 1.0})) for n in names]
    found = build(study(rows=names, columns=("test/bleu_tok",), table="100 %"), "smoke", records)
    text = latex(found)
    assert r"\caption{100 \% (D0), scale=smoke}" in text
    assert r"test/bleu\_tok" in text
    assert r"a\_b \& c\% & a$<$b$|$c$>$d & 1.00" in text
    assert r"\$x\textasciicircum{}2 \#1\textasciitilde{}\{y\}\textbackslash{} & " in text


def test_latex_rules_part_the_points_of_the_grid():
    records = [
        (planned("ln", 1, point), made("ln", 1, {"test/bleu": 1.0})) for point in ("a=1", "a=2")
    ]
    assert latex(build(study(), "smoke", records)).count(r"\midrule") == 2


def test_markdown_escapes_pipes():
    found = build(study(rows={"a|b": ("norm=ln",)}), "smoke", [(planned("a|b", 1), None)])
    assert r"| a\|b | - |" in markdown(found)


def test_digits_by_kind_of_score():
    assert figure(31.416, "test/bleu") == "31.42"
    assert figure(3.14159, "valid/loss") == "3.142"
    assert figure(0.71549, "test/mlm_accuracy") == "0.715"
    assert figure(1234567.0, STEPS) == "1,234,567"
    assert shown({"ln": [math.nan]}) == "nan"


def test_steps_that_were_never_needed():
    assert shown({"ln": [math.inf, math.inf]}, STEPS) == "not reached"
    assert shown({"ln": [math.inf, 100.0, 200.0]}, STEPS) == "reached 2/3"
    assert shown({"ln": [100.0, 300.0]}, STEPS) == "200 +- 141"


def test_the_documents_figure_stands_with_the_distance_from_it():
    def said(value, measured):
        return shown({"ln": [measured]}, STEPS, figures={"ln": {STEPS: value}}).split("<br>")

    assert said(1e6, 2000.0)[1] == "document: 1,000,000 (-998,000)"
    assert said("1M", 2000.0)[1] == "document: 1M"
    assert said(1e6, math.inf) == ["not reached", "document: 1,000,000"]
    figures = {"ln": {"test/bleu": 35.2}}
    assert shown({"ln": [None]}, figures=figures) == "-<br>document: 35.2"


def test_probabilities_near_none_and_one():
    assert "p < 0.001" in shown({"ln": [1.0, 2.0], "bn": [3.0, 4.0]})
    assert "(+0.00 [+0.00, +0.00], p = 1.000)" in shown({"ln": [1.0, 2.0], "bn": [1.0, 2.0]})
