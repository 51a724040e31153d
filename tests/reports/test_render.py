"""Fixed bytes of Markdown, LaTeX and CSV, from fixed records."""

import csv
import io
import math

import pytest

from normlab.reports.study_page import study_page
from normlab.reports.study_table import build
from normlab.reports.table import comma_separated, figure, latex, markdown
from normlab.studies import Scale
from tests.records.examples import SIGNATURE
from tests.reports.tables import made, planned, runs, study

STEPS = "valid/steps_to/bleu_20"
FIGURES = {
    "ln": {"test/bleu": 35.2, "stability": "stable"},
    "bn": {"test/bleu": "no BLEU"},
}
VALUES = {
    "ln": [30.0, 30.1, 30.2, 30.1, 30.1],
    "bn": [20.0, 20.2, 20.4, 20.2, 20.2],
    "gn": [None],
}
# Differences -10, -9.9, -9.8, -9.9, -9.9: deviation 0.0707, half an interval 2.776 of it by root 5.
MARKDOWN = f"""\
**Translation, on data that is not named (norms, scale=smoke)**

| setting | at | test/bleu | valid/loss | stability | document (its data) |
| --- | --- | --- | --- | --- | --- |
| ln | - | **30.10 +- 0.07** | - | finished 5/5; diverged 0; spikes 0 | test/bleu 35.2; stability stable |
| bn | - | 20.20 +- 0.14<br>(-9.90 [-9.99, -9.81], p < 0.001) | - | finished 5/5; diverged 0; spikes 0 | test/bleu no BLEU |
| gn | - | - | - | no run | - |

- data: None; fp32 on None; 100 updates
- mean +- standard deviation over the seeds that finished; in brackets the difference to ln at the \
same point, paired by seed, with its 95 % t interval and p value, not corrected for multiple \
comparisons
- bold: better than every other row at its point, p below 0.05 after Holm over all pairs of rows; \
all rows have 5 seeds or more, all of them finished and clear of the untrained baseline, and the \
two runs of each pair have the same code
- document: what D0 says, at its own size and data
- scored by: test/bleu {SIGNATURE}
"""  # noqa: E501
LATEX = r"""\begin{table}
\centering
\caption{Translation, on data that is not named (norms, scale=smoke)}
\begin{tabular}{llrrll}
\toprule
setting & at & test/bleu & valid/loss & stability & document (its data) \\
\midrule
ln & - & \textbf{30.10 $\pm$ 0.07} & - & finished 5/5; diverged 0; spikes 0 & test/bleu 35.2; stability stable \\
bn & - & \shortstack[r]{20.20 $\pm$ 0.14\\{\scriptsize -9.90 [-9.99, -9.81], p $<$ 0.001}} & - & finished 5/5; diverged 0; spikes 0 & test/bleu no BLEU \\
gn & - & - & - & no run & - \\
\bottomrule
\end{tabular}
\end{table}
"""  # noqa: E501


@pytest.fixture
def table():
    return build(study(figures=FIGURES, document_data="its data"), "smoke", runs(VALUES))


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


def test_csv_has_twelve_digits(table):
    rows = list(csv.DictReader(io.StringIO(comma_separated(table))))
    ln, _, bn = rows[:3]
    assert [row["setting"] for row in rows] == ["ln", "ln", "bn", "bn", "gn", "gn"]
    bleu = table.rows[1].entries["test/bleu"]
    assert float(bn["mean"]) == bleu.summary.mean
    found = [float(bn[name]) for name in ("sd", "low", "p")]
    exact = [bleu.summary.sd, bleu.difference.low, bleu.p]
    assert found == pytest.approx(exact, rel=1e-11)
    assert (ln["best"], ln["document"], ln["difference"]) == ("1", "35.2", "")
    assert (bn["n"], bn["seeds"], bn["outcome"]) == ("5", "1 2 3 4 5", "finished 5/5")
    assert bn["stability"] == "finished 5/5; diverged 0; spikes 0"
    assert (rows[-1]["mean"], rows[-1]["n"], rows[-1]["outcome"]) == ("", "0", "no run")
    header = (
        "setting,at,score,mean,sd,n,seeds,difference,low,high,p,document,best,outcome,stability\n"
    )
    assert comma_separated(table).startswith(header)


def test_latex_special_characters_are_escaped():
    names = {"a_b & c%": ("norm=ln",), "$x^2 #1~{y}\\": ("norm=bn",)}
    point = "a<b|c>d"
    records = [(planned(n, 1, point), made("ln", 1, {"test/bleu_tok": 1.0})) for n in names]
    records.append((planned("a_b & c%", 1, "a=2"), made("ln", 1, {"test/bleu_tok": 1.0})))
    found = build(study(rows=names, columns=("test/bleu_tok",), table="100 %"), "smoke", records)
    text = latex(found)
    assert text.count(r"\midrule") == 2, "a rule between the points of the grid"
    assert r"\caption{100 \%, on " in text
    assert r"test/bleu\_tok" in text
    assert r"a\_b \& c\% & a$<$b$|$c$>$d & 1.00" in text
    assert r"\$x\textasciicircum{}2 \#1\textasciitilde{}\{y\}\textbackslash{} & " in text


def test_markdown_escapes_pipes():
    found = build(study(rows={"a|b": ("norm=ln",)}), "smoke", [(planned("a|b", 1), None)])
    assert r"| a\|b | - |" in markdown(found)


def test_digits_by_kind_of_score():
    assert figure(31.416, "test/bleu") == "31.42"
    assert figure(3.14159, "valid/loss") == "3.142"
    assert figure(0.71549, "test/mlm_accuracy") == "0.715"
    assert figure(1234567.0, STEPS) == "1,234,567"
    assert figure(-1.65687e17, "stability/gradients/norm/decoder.0") == "-1.66e+17"
    assert shown({"ln": [math.nan]}) == "nan"
    assert "p < 0.001" in shown({"ln": [1.0, 2.0], "bn": [3.0, 4.0]})


def test_steps_that_were_never_needed():
    assert shown({"ln": [math.inf, math.inf]}, STEPS) == "not reached"
    assert shown({"ln": [math.inf, 100.0, 200.0]}, STEPS) == "reached 2/3"
    assert shown({"ln": [100.0, 300.0]}, STEPS) == "200 +- 141"


def test_the_documents_figure_of_the_same_data_stands_with_the_distance_from_it():
    own = {"smoke": Scale((), (1,), 0.5, "its", ("ln",), {}, "A")}

    def said(value, measured):
        figures = {"ln": {STEPS: value}}
        return shown({"ln": [measured]}, STEPS, figures=figures, scales=own).split("<br>")

    assert said(1e6, 2000.0)[1] == "document: 1,000,000 (-998,000)"
    assert said("1M", 2000.0)[1] == "document: 1M"
    assert said(1e6, math.inf) == ["not reached", "document: 1,000,000"]
    figures = {"ln": {"test/bleu": 35.2, "stability": "stable"}}
    assert shown({"ln": [None]}, figures=figures, scales=own) == "-<br>document: 35.2"
    text = markdown(build(study(figures=figures, scales=own), "smoke", runs({"ln": [1.0]})))
    assert "spikes 0<br>document: stable |" in text


def test_every_format_has_the_same_bold_values_and_no_difference_to_other_data(table):
    page = study_page(study(), "smoke", table, [])
    for text in (markdown(table), latex(table), page, comma_separated(table)):
        assert "35.2" in text and "-5.1" not in text and "\N{MINUS SIGN}5.1" not in text
    assert markdown(table).count("**") == 4  # the title, and one value
    assert latex(table).count("textbf") == 1
    assert page.count("<strong>") == 1 and "<strong>30.10" in page
