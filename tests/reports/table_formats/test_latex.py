"""A table in LaTeX: its exact text, its marks, and how it fits on a page."""

import dataclasses

from normlab.reports.arrangement.arrangement import Arrangement
from normlab.reports.arrangement.row_names import RowName
from normlab.reports.table_formats.latex import latex_table
from normlab.reports.table_formats.markdown import markdown_table
from normlab.reports.tables.build_table import build_table
from tests.reports.handmade import BLEU, build, diverged, made, run, study, table

FIGURES = {"ln": {BLEU: 35.2, "stability": "stable"}, "bn": {BLEU: "no BLEU"}}

VALUES = {
    "ln": [30.0, 30.1, 30.2, 30.1, 30.1],
    "bn": [20.0, 20.2, 20.4, 20.2, 20.2],
    "gn": [None],
}

LATEX = r"""\begin{table}
\centering
\caption{Translation, on unnamed data (norms, scale=smoke). Mean $\pm$ standard deviation over 5 seeds. Bold: better than every other row at its point (Holm). In brackets: difference from ln, paired by seed, 95\,\%}
\label{tab:norms-smoke}
\begin{tabular}{lrrr}
\toprule
 & BLEU & validation loss & runs \\
\midrule
ln & \textbf{30.10 $\pm$ 0.07} & -- & finished 5/5 \\
bn & 20.20 $\pm$ 0.14 & -- & finished 5/5 \\
 & {\scriptsize $-$9.90 [$-$9.99, $-$9.81], p $<$ 0.001} &  &  \\
gn & -- & -- & not run \\
\bottomrule
\end{tabular}
\end{table}
"""  # noqa: E501


def test_latex_is_fixed_byte_for_byte_and_notes_are_comments():
    found = table(VALUES, article_values=FIGURES, article_data="its data")
    text = latex_table(found, baseline="ln", uncertainty="intervals")
    comments = text.removeprefix(LATEX).splitlines()
    assert text.startswith(LATEX) and len(comments) == 7
    assert comments[-2] == "% article (its data), ln: test/bleu 35.2; stability stable"
    assert all(line.startswith("% ") for line in comments)


def test_special_characters_are_escaped_in_latex_and_markdown():
    names = {"a_b & c%": ("norm=ln",), "$x^2 #1~{y}\\": ("norm=bn",)}
    point = "a<b|c>d"
    records = [run(made("ln", 1, {"test/bleu_tok": 1.0}), name, 1, point) for name in names]
    records.append(run(made("ln", 1, {"test/bleu_tok": 1.0}), "a_b & c%", 1, "a=2"))
    found = build(study(rows=names, columns=("test/bleu_tok",), table="100 %"), records)
    text = latex_table(found)
    assert text.count(r"\addlinespace") == 1, "space between the points of the grid"
    assert r"\caption{100 \%, on " in text and "tokenized BLEU" in text
    assert r"\textit{a$<$b$|$c$>$d}" in text and r"a\_b \& c\% & 1.00" in text
    assert r"\$x\textasciicircum{}2 \#1\textasciitilde{}\{y\}\textbackslash{} & " in text
    assert r"a&lt;b\|c>d | 1.00" in markdown_table(found)


def test_latex_has_a_column_per_batch_size_and_stars_for_significance():
    sizes = {size: (f"batch_size={size}",) for size in ("8", "128")}
    values = {("ln", "8"): 30.0, ("bn", "8"): 28.0, ("ln", "128"): 31.0, ("bn", "128"): 31.2}
    noise = {(n, seed): (seed % 2) / 10 for n in ("ln", "bn") for seed in (1, 2, 3)}
    noise["bn", 2] = 0.01
    found = [
        run(made(n, seed, {BLEU: value + noise[n, seed]}), n, seed, f"batch_size={size}")
        for (n, size), value in values.items()
        for seed in (1, 2, 3)
    ]
    found[-1] = run(made("bn", 3, {BLEU: 29.0}), "bn", 3, "batch_size=128")
    of = study(rows={"ln": ("norm=ln",), "bn": ("norm=bn",)}, grid={"batch_size": sizes})
    table = build(dataclasses.replace(of, columns=(BLEU,)), found)
    text = latex_table(table, baseline="ln", uncertainty="stars")
    assert r"\label{tab:norms-smoke}" in text and r"batch size & 8 & 128 \\" in text
    assert r"ln & 30.07 $\pm$ 0.06 & 31.07 $\pm$ 0.06 \\" in text
    assert r"bn & 28.07 $\pm$ 0.05$^{***}$ & 30.50 $\pm$ 1.30 \\" in text
    assert "p<0.05" in text and "p<0.05" not in latex_table(table)
    sweep = build_table(
        Arrangement(
            {norm: RowName((norm,)) for norm in ("ln", "bn")},
            (BLEU,),
            ("batch_size",),
            found,
            "data",
        )
    )
    assert r"\caption{BLEU by batch size on data" in latex_table(sweep)
    assert r"\label{tab:test-bleu-batch-size-2}" in latex_table(sweep, number=2)


def test_an_entry_of_a_grid_says_how_many_seeds_finished_if_not_all_did():
    values = {size: (f"batch_size={size}",) for size in ("8", "128")}
    found = [
        run(made(n, seed, {BLEU: 30.0 + seed / 10}), n, seed, f"batch_size={size}")
        for n in ("ln", "bn")
        for size in values
        for seed in (1, 2)
    ]
    found[5] = run(diverged(found[5].record, 3), *found[5].key[::2], found[5].key.point)
    of = study(rows={n: (f"norm={n}",) for n in ("ln", "bn")}, grid={"batch_size": values})
    one = latex_table(build(dataclasses.replace(of, columns=(BLEU,)), found))
    assert r"bn & 30.10 (1/2) & 30.15 $\pm$ 0.07 \\" in one
    assert "(1/2): that many runs finished" in one
    found[4] = run(diverged(found[4].record, 3), *found[4].key[::2], found[4].key.point)
    assert r"bn & (0/2) & 30.15" in latex_table(
        build(dataclasses.replace(of, columns=(BLEU,)), found)
    )


def test_latex_tables_are_split_to_fit_the_width_and_the_height_of_a_page():
    columns = (BLEU, "test_2017/bleu", "test/mlm_accuracy", "test/nsp_accuracy", "valid/mlm_loss")
    rows = {f"row {n:02}": (f"norm={name}",) for n, name in enumerate(["ln", "bn"] * 20)}
    found = [
        run(
            made(norm[0][5:], seed, {each: 30.0 + seed * int(name[-2:]) for each in columns}),
            name,
            seed,
        )
        for name, norm in rows.items()
        for seed in (1, 2)
    ]
    of = study(rows=rows, columns=columns)
    few = dataclasses.replace(build(of, found), notes=())
    few = dataclasses.replace(few, rows=few.rows[:4])
    text = latex_table(few, uncertainty="intervals")
    assert text.count(r"\begin{tabular}") == 3, (
        "five columns with intervals do not fit side by side"
    )
    assert r"\footnotesize" in text and r"\shortstack[r]{sentence-pair\\accuracy}" in latex_table(
        few
    )
    assert latex_table(dataclasses.replace(few, columns=columns[:2])).count(r"\footnotesize") == 0
    tall = latex_table(build(of, found), uncertainty="intervals")
    assert r"\begin{longtable}" in tall and r"\begin{table}" not in tall
    assert tall.count(r"\caption") == tall.count(r"\endfirsthead") == 1, "one caption for all pages"
