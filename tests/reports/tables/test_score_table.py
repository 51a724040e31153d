"""Table values, checked by hand and against Student's tables, and the marks, notes and refusals."""

import csv
import dataclasses
import io
import math

import pytest
from msgspec.structs import replace

from normlab.errors import UserError
from normlab.metrics.baseline import CLEAR, NOT_CLEAR, ON_PLATEAU
from normlab.metrics.score_text import score_text
from normlab.reports.pages.run_pages import study_page
from normlab.reports.renaming import chosen_names, renamed
from normlab.reports.tables.comma_separated import comma_separated
from normlab.reports.tables.latex import latex
from normlab.reports.tables.markdown import markdown
from normlab.reports.tables.notes import About, Note
from normlab.reports.tables.score_table import score_table
from normlab.reports.tables.table_runs import TableRuns
from tests.records.examples import SIGNATURE
from tests.reports.handmade import build, made, run, runs, study

BLEU, STEPS = "test/bleu", "valid/steps_to/bleu_20"
T_2 = 4.302652729911275  # two-sided 95 % quantile of Student's t at two degrees, from tables
T_1 = 12.706204736174698  # and at one


def table(values, **changes):
    return build(study(**changes), runs(values))


def source():
    """Return a study without runs."""
    return TableRuns.of_study(study(), "smoke", ())


def row(found, name, point=""):
    return next(row for row in found.rows if (row.name, row.point) == (name, point))


def entry(found, name):
    return row(found, name).entries[BLEU]


def note_of(found, start):
    return "".join(note for note in found.notes if note.startswith(start))


def test_differences_are_paired_by_seed():
    # -1, -2, -3: mean -2, sd 1, whatever the seeds share.
    found = table({"ln": [30.0, 40.0, 50.0], "bn": [29.0, 38.0, 47.0]})
    gap = entry(found, "bn").difference
    half = T_2 / math.sqrt(3)
    assert (gap.mean, gap.sd, gap.n) == pytest.approx((-2.0, 1.0, 3))
    assert (gap.low, gap.high) == pytest.approx((-2 - half, -2 + half))
    # t = -2 sqrt(3) at two degrees, whose distribution has the closed form t / sqrt(2 + t^2).
    assert entry(found, "bn").p == pytest.approx(1 - math.sqrt(12 / 14))
    assert entry(found, "ln").difference is None and entry(found, "ln").p is None
    assert entry(found, "bn").gap == "-2.00 [-4.48, +0.48], p = 0.074"
    assert note_of(found, "differences:") == ""


def test_a_row_with_the_same_values_as_the_baseline_has_no_p_value():
    found = table({"ln": [0.0, 0.0, 0.0], "bn": [0.0, 0.0, 0.0]})
    assert entry(found, "bn").difference.mean == 0 and entry(found, "bn").gap == ""


def test_a_seed_missing_on_one_side_is_left_out_of_the_difference():
    found = table({"ln": [30.0, 40.0, 50.0], "bn": [29.0, None, 47.0]})
    gap = entry(found, "bn").difference
    assert (gap.mean, gap.n) == (-2.0, 2)
    assert gap.high == pytest.approx(-2 + T_1 * math.sqrt(2) / math.sqrt(2))
    assert row(found, "bn").outcome == "finished 2/2, 1 not run"
    assert "only seeds 1 3 are pairs (bn)" in note_of(found, "differences:")
    assert entry(found, "bn").summary.mean == 38.0


def test_a_single_pair_has_no_difference_and_a_table_without_runs_says_so():
    one = table({"ln": [30.0, None], "bn": [29.0, 38.0]})
    assert entry(one, "bn").difference is None
    assert table({"ln": [None], "bn": [None]}).notes == ("no run has ended",)


def test_a_row_with_a_diverged_seed_counts_it_and_is_not_compared():
    lost = run(made("bn", 3, {BLEU: 1.0}, status="diverged", spikes=9.0), "bn", 3)
    found = build(study(), [*runs({"ln": [30.0, 40.0, 50.0], "bn": [29.0, 38.0]}), lost])
    assert (
        row(found, "bn").outcome == "diverged 1/3" and len(row(found, "bn").experiment.records) == 3
    )
    assert row(found, "bn").stability == "diverged 1/3; spikes 0"
    assert entry(found, "bn").summary.mean == 33.5 and entry(found, "bn").difference is None
    said = "not compared with ln, seeds diverged: 1 of 3 of the row; the others are not a fair"
    assert said in note_of(found, "differences:")


NOISE = (0.0, 0.2, 0.1, 0.3, 0.15, 0.05, 0.25, 0.1)


def noisy(*means, seeds=5):
    """Return values of rows whose differences vary: each row has the noise in its own order."""
    names = ("ln", "bn", "gn")
    return {
        name: [mean + NOISE[(n * 3 + seed) % len(NOISE)] for seed in range(seeds)]
        for n, (name, mean) in enumerate(zip(names, means, strict=False))
    }


def bold(values, score=BLEU):
    found = build(study(columns=(score,)), runs(values, score))
    return [row.name for row in found.rows if row.entries[score].best]


FOUR_SEEDS = {**noisy(30.0, 20.0, 25.0), "gn": [25.0, 25.1, 25.2, 25.0]}


@pytest.mark.parametrize(
    ("values", "score", "best"),
    [
        (noisy(30.0, 20.0, 25.0), BLEU, ["ln"]),
        (noisy(30.0, 20.0, 30.05), BLEU, []),
        (noisy(30.0), BLEU, []),  # there is only one row
        (noisy(2.0, 3.0), "valid/loss", ["ln"]),
        (noisy(30.0, 20.0, 25.0, seeds=4), BLEU, []),
        (FOUR_SEEDS, BLEU, []),
        (noisy(1.4, 1.0), "test/length_ratio", []),  # 1 is best, not the longest output
    ],
)
def test_a_value_is_bold_only_if_it_beats_every_other_row_over_five_seeds(values, score, best):
    assert bold(values, score) == best


def test_a_row_with_fewer_than_five_seeds_is_noted():
    assert "(fewest: 4)" in note_of(table(FOUR_SEEDS), "rows with fewer than 5")
    assert note_of(table(noisy(30.0, 20.0)), "rows with fewer than 5") == ""


def test_the_p_value_of_a_bold_value_is_corrected_for_all_pairs_of_rows():
    # Mean 0.32 and deviation 0.1924, so t = 3.720 at four degrees, whose distribution has a closed
    # form: p = 0.0205, which is below 0.05 alone and not after Holm over three pairs.
    gaps = [0.1, 0.2, 0.3, 0.4, 0.6]
    two = {"ln": [30.0 + gap for gap in gaps], "bn": [30.0] * 5}
    cosine = math.cos(math.atan(3.7200 / 2))
    closed = 1 - math.sqrt(1 - cosine**2) * (1 + cosine**2 / 2)
    assert entry(table(two), "bn").p == pytest.approx(closed, abs=1e-5)
    assert bold(two) == ["ln"]
    assert bold({**two, "gn": [30.0, 30.0, 30.0, 30.0, 30.001]}) == []


def test_nothing_is_bold_if_a_row_diverged_is_near_the_baseline_or_ran_different_code():
    every = runs(noisy(30.0, 20.0))

    def is_bold(made_of):
        return any(row.entries[BLEU].best for row in build(study(), made_of).rows)

    assert is_bold(every)
    for changes in ({"floors": {"bleu": 20.1}}, {"numerics": "new"}):
        changed = [
            run(replace(each.record, **changes) if row == "bn" else each.record, row, seed)
            for each in every
            for row, _, seed in [each.key]
        ]
        assert not is_bold(changed)
    for name in ("ln", "bn", "gn"):  # a row without a score also counts
        lost = run(made(name, 6, {BLEU: 1.0}, status="diverged"), name, 6)
        assert not is_bold([*every, lost])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"data": {"checksums": {"train": "other"}}}, "not comparable: data.checksums"),
        ({"signature": "tok:none"}, "test/bleu was computed in several ways"),
        ({"optim": {"lr": 1.0}}, "differ in optim.lr"),
        ({"seed": 1}, "seed 1 occurs twice"),
    ],
)
def test_seeds_that_must_not_be_averaged_are_refused_and_other_rows_are_shown(changes, reason):
    other = made("bn", **{"seed": 2, "scores": {BLEU: 38.0}, **changes})
    made_of = [*runs({"ln": [30.0, 40.0], "bn": [29.0]}), run(other, "bn", other.seed)]
    found = build(study(), made_of)
    assert row(found, "bn").outcome == "refused" and entry(found, "bn").summary is None
    assert reason in row(found, "bn").problem and reason in note_of(found, "bn: ")
    assert entry(found, "ln").summary.mean == 35.0


def test_rows_with_different_precisions_are_compared_only_if_they_declare_them():
    changes = {"precision": "bf16", "environment": {"precision": "bf16"}}
    bn = [run(made("bn", s, {BLEU: 1.0 + s}, **changes), "bn", s) for s in (1, 2)]
    rows = {"ln": ("norm=ln", "precision=fp32"), "bn": ("norm=ln", "precision=bf16")}
    found = build(study(rows=rows), [*runs({"ln": [3.0, 4.0]}), *bn])
    assert entry(found, "bn").difference.mean == -1.0
    undeclared = build(study(), [*runs({"ln": [3.0, 4.0]}), *bn])
    assert entry(undeclared, "bn").difference is None


def test_notes_give_the_number_of_updates_the_tested_weights_and_the_baseline():
    chosen = made("ln", 1, {"valid/loss": 6.2}, validate={"average": 0, "select_by": "loss"})
    chosen = replace(chosen, floors={"loss": 6.67, "bleu": 3.0})
    lengths = [
        run(replace(chosen, budget=replace(chosen.budget, steps=1000 * n)), name)
        for n, name in enumerate(("ln", "bn", "gn", "in"), 1)
    ]
    found = build(study(), lengths)
    assert found.notes[0].endswith("1,000 to 4,000 updates")
    assert "tested: the weights of the best valid/loss, not the last" in found.notes
    assert "untrained baseline: valid/loss 6.670" in found.notes
    note = note_of(found, NOT_CLEAR)  # 6.2 is better, but not by a nat
    assert note.startswith(f"{NOT_CLEAR} ({CLEAR}), so a difference says nothing")
    assert note.endswith("says nothing: valid/loss (all rows)")


def test_runs_that_did_not_learn_or_that_see_the_future_are_marked():
    flat = {1: 6.6, 2: 2.0}  # test losses; the untrained baseline has 6.67
    made_of = [
        run(replace(made(name, s, {BLEU: 1.0, "test/loss": loss}), **changes), name, s)
        for name, changes in (
            ("ln", {"floors": {"loss": 6.67}}),
            ("bn", {"floors": {"loss": 60.0}, "sees_future": ["InstanceNorm"]}),
        )
        for s, loss in flat.items()
    ]
    found = build(study(), made_of)
    ln, bn = (row.stability.split("; ") for row in found.rows)
    assert f"1/2 {NOT_CLEAR}" in ln and "sees the future" not in ln
    assert f"1/2 {ON_PLATEAU}" in ln and not any(ON_PLATEAU in part for part in bn)
    assert note_of(found, f"{ON_PLATEAU}: ").startswith(f"{ON_PLATEAU}: test/loss within 0.15 nats")
    assert note_of(found, f"{NOT_CLEAR} (").endswith("): ln (1/2 runs)"), "no column is near it"
    assert "sees the future" in bn and not any(NOT_CLEAR in part for part in bn)
    assert note_of(found, "sees the future").startswith("sees the future: bn (InstanceNorm): ")


# Text ---------------------------------------------------------------------------------------------

FIGURES = {"ln": {BLEU: 35.2, "stability": "stable"}, "bn": {BLEU: "no BLEU"}}
VALUES = {
    "ln": [30.0, 30.1, 30.2, 30.1, 30.1],
    "bn": [20.0, 20.2, 20.4, 20.2, 20.2],
    "gn": [None],
}
# Differences -10, -9.9, -9.8, -9.9, -9.9: deviation 0.0707, half an interval 2.776 of it by root 5.
MARKDOWN = f"""\
**Translation, on data that is not named (norms, scale=smoke)**

| setting | at | test/bleu | valid/loss | stability | article (its data) |
| --- | --- | --- | --- | --- | --- |
| ln | - | **30.10 +- 0.07** | - | finished 5/5; diverged 0; spikes 0 | test/bleu 35.2; stability stable |
| bn | - | 20.20 +- 0.14<br>(-9.90 [-9.99, -9.81], p < 0.001) | - | finished 5/5; diverged 0; spikes 0 | test/bleu no BLEU |
| gn | - | - | - | not run | - |

- data: None; fp32 on None; 100 updates
- mean +- standard deviation over the seeds that finished; in brackets the difference from ln, \
paired by seed, with its 95 % t interval and p value, not corrected for multiple comparisons
- bold: better than every other row at its point, p below 0.05 after Holm over all pairs of rows; \
all rows have 5 seeds or more, all of them finished and clearly better than the untrained \
baseline, and the two runs of each pair have the same code
- article: what article 1 says, at its own size and data
- scored by: test/bleu {SIGNATURE}
"""  # noqa: E501
LATEX = r"""\begin{table}
\centering
\caption{Translation, on data that is not named (norms, scale=smoke). Mean $\pm$ standard deviation over 5 seeds. Bold: better than every other row at its point (Holm). In brackets: difference from ln, paired by seed, 95\,\%}
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


def test_markdown_and_latex_are_fixed_byte_for_byte_and_the_page_has_the_same_bold_value(tmp_path):
    found = table(VALUES, article_values=FIGURES, article_data="its data")
    assert markdown(found) == MARKDOWN
    text = latex(found, baseline="ln", uncertainty="intervals")
    comments = text.removeprefix(LATEX).splitlines()
    assert text.startswith(LATEX) and len(comments) == 7
    assert comments[-2] == "% article (its data), ln: test/bleu 35.2; stability stable"
    assert all(line.startswith("% ") for line in comments)
    page = study_page(source(), found, tmp_path)
    assert page.count("<strong>") == 1 and "<strong>30.10" in page
    for text in (markdown(found), latex(found), page, comma_separated(found)):
        assert "35.2" in text and "-5.1" not in text, (
            "no difference to an article's value on different data"
        )


def test_csv_values_agree_to_eleven_digits():
    found = table(VALUES, article_values=FIGURES)
    rows = list(csv.DictReader(io.StringIO(comma_separated(found))))
    bn, bleu = rows[2], entry(found, "bn")
    assert float(bn["mean"]) == bleu.summary.mean
    exact = [bleu.summary.sd, bleu.difference.low, bleu.p]
    assert [float(bn[name]) for name in ("sd", "low", "p")] == pytest.approx(exact, rel=1e-11)


def test_csv_has_a_line_for_each_row_and_score_with_its_seeds():
    rows = list(csv.DictReader(io.StringIO(comma_separated(table(VALUES, article_values=FIGURES)))))
    ln, _, bn = rows[:3]
    assert [row["setting"] for row in rows] == ["ln", "ln", "bn", "bn", "gn", "gn"]
    assert (ln["best"], ln["article"], ln["difference"]) == ("1", "35.2", "")
    assert (bn["n"], bn["seeds"], bn["outcome"]) == ("5", "1 2 3 4 5", "finished 5/5")
    assert bn["stability"] == "finished 5/5; diverged 0; spikes 0"
    assert (rows[-1]["mean"], rows[-1]["n"], rows[-1]["outcome"]) == ("", "0", "not run")


def test_special_characters_are_escaped_in_latex_and_markdown():
    names = {"a_b & c%": ("norm=ln",), "$x^2 #1~{y}\\": ("norm=bn",)}
    point = "a<b|c>d"
    records = [run(made("ln", 1, {"test/bleu_tok": 1.0}), name, 1, point) for name in names]
    records.append(run(made("ln", 1, {"test/bleu_tok": 1.0}), "a_b & c%", 1, "a=2"))
    found = build(study(rows=names, columns=("test/bleu_tok",), table="100 %"), records)
    text = latex(found)
    assert text.count(r"\addlinespace") == 1, "space between the points of the grid"
    assert r"\caption{100 \%, on " in text and "tokenized BLEU" in text
    assert r"\textit{a$<$b$|$c$>$d}" in text and r"a\_b \& c\% & 1.00" in text
    assert r"\$x\textasciicircum{}2 \#1\textasciitilde{}\{y\}\textbackslash{} & " in text
    assert r"a&lt;b\|c>d | 1.00" in markdown(found)


def test_latex_has_a_column_per_batch_size_and_stars_for_significance():
    sizes = {size: (f"batch_size={size}",) for size in ("8", "128")}
    values = {("ln", "8"): 30.0, ("bn", "8"): 28.0, ("ln", "128"): 31.0, ("bn", "128"): 31.2}
    found = [
        run(made(n, seed, {BLEU: value + (seed % 2) / 10}), n, seed, f"batch_size={size}")
        for (n, size), value in values.items()
        for seed in (1, 2, 3)
    ]
    found[-1] = run(made("bn", 3, {BLEU: 29.0}), "bn", 3, "batch_size=128")
    of = study(rows={"ln": ("norm=ln",), "bn": ("norm=bn",)}, grid={"batch_size": sizes})
    table = build(dataclasses.replace(of, columns=(BLEU,)), found)
    text = latex(table, baseline="ln", uncertainty="stars")
    assert r"\label{tab:norms-smoke}" in text and r"batch size & 8 & 128 \\" in text
    assert r"ln & 30.07 $\pm$ 0.06 & 31.07 $\pm$ 0.06 \\" in text
    assert r"bn & 28.07 $\pm$ 0.06$^{***}$ & 30.50 $\pm$ 1.30 \\" in text
    assert "p<0.05" in text and "p<0.05" not in latex(table)
    sweep = score_table(TableRuns({"ln": (), "bn": ()}, (BLEU,), ("batch_size",), found))
    assert r"\caption{BLEU by batch size on data" in latex(sweep)
    assert r"\label{tab:test-bleu-batch-size-2}" in latex(sweep, number=2)


@pytest.fixture
def sweep():
    """Return the runs of three rows at two batch sizes, as for a table."""
    rows = {row: (f"norm={row[:2]}",) for row in ("ln", "bn, lr=1", "bn+ln pre")}
    found = [
        run(made("ln", 1, {BLEU: 30.0}), row, 1, f"batch_size={n}") for row in rows for n in (8, 32)
    ]
    grid = {"batch_size": {"8": (), "32": ()}}
    return TableRuns.of_study(study(rows=rows, grid=grid, columns=(BLEU,)), "smoke", found)


def test_latex_uses_the_full_names_of_norms_unless_the_user_renames_them(sweep):
    full = latex(score_table(renamed(sweep, {}, full=True)))
    assert all(f"\n{row} & 30.00" in full for row in ("Layer norm", "Batch norm + Layer norm pre"))
    words = ["ln=LN", "bn, lr=1=BN & co", "batch_size=sentences", f"{BLEU}=quality"]
    names = chosen_names(words, [sweep])
    named = score_table(renamed(sweep, names, full=True), names)
    rows = [*dict.fromkeys(row.name for row in named.rows)]
    assert rows == ["LN", "BN & co", "Batch norm + LN pre"] and named.head[2] == "quality"
    text = latex(named)
    assert r"sentences & 8 & 32 \\" in text and r"BN \& co & 30.00" in text
    assert r"\label{tab:norms-smoke}" in text


def test_renaming_an_unknown_row_or_two_rows_to_the_same_name_is_an_error(sweep):
    assert chosen_names(["gn=GN"], [sweep]) == {"gn": "GN"}, "a norm may have no row yet"
    for wrong in (["xn=GN"], ["ln"], ["ln="]):
        with pytest.raises(UserError, match=r"expected NAME=TEXT.*choose from ln; bn"):
            chosen_names(wrong, [sweep])
    with pytest.raises(UserError, match="rows ln and bn, lr=1 would both be called X"):
        renamed(sweep, {"ln": "X", "bn, lr=1": "X"})


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
    text = latex(few, uncertainty="intervals")
    assert text.count(r"\begin{tabular}") == 3, (
        "five columns with intervals do not fit side by side"
    )
    assert r"\footnotesize" in text and r"\shortstack[r]{sentence-pair\\accuracy}" in latex(few)
    assert latex(dataclasses.replace(few, columns=columns[:2])).count(r"\footnotesize") == 0
    tall = latex(build(of, found), uncertainty="intervals")
    assert r"\begin{longtable}" in tall and r"\begin{table}" not in tall
    assert tall.count(r"\caption") == tall.count(r"\endfirsthead") == 1, "one caption for all pages"


@pytest.mark.parametrize(
    ("value", "score", "text"),
    [
        (31.416, BLEU, "31.42"),
        (3.14159, "valid/loss", "3.142"),
        (0.71549, "test/mlm_accuracy", "0.715"),
        (1234567.0, STEPS, "1,234,567"),
        (-1.65687e17, "stability/gradients/norm/decoder.0", "-1.66e+17"),
    ],
)
def test_the_number_of_digits_depends_on_the_kind_of_score(value, score, text):
    assert score_text(value, score) == text


@pytest.mark.parametrize(
    ("values", "score", "text"),
    [
        ({"ln": [math.nan]}, BLEU, "nan"),
        (
            {"ln": [1.0, 2.0], "bn": [3.0, 4.0]},
            BLEU,
            "3.50 +- 0.71<br>(+2.00 [+2.00, +2.00], p < 0.001)",
        ),
        ({"ln": [math.inf, math.inf]}, STEPS, "not reached"),
        ({"ln": [math.inf, 100.0, 200.0]}, STEPS, "reached 2/3"),
        ({"ln": [100.0, 300.0]}, STEPS, "200 +- 141"),
    ],
)
def test_a_cell_shows_nan_and_how_many_runs_reached_a_target(values, score, text):
    found = build(study(columns=(score,)), runs(values, score))
    assert markdown(found).split("\n\n")[1].splitlines()[-1].split(" | ")[2] == text


def test_a_page_collapses_routine_notes_by_their_subject_not_by_their_words(tmp_path):
    notes = (Note("data: of mine"), Note("of yours", about=About.DATA))
    found = dataclasses.replace(table({"ln": [1.0, 2.0]}), notes=notes)
    shown, folded = study_page(source(), found, tmp_path).split("<details", 1)
    assert "data: of mine" in shown and "of yours" not in shown and "of yours" in folded
