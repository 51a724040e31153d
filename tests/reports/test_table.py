"""The figures of a table by hand and by Student's tables; what it marks, and what it refuses."""

import math

import pytest
from msgspec.structs import replace

from normlab.reports.study_table import build
from normlab.studies import Scale
from tests.reports.tables import made, planned, runs, study

BLEU = "test/bleu"
T_2 = 4.302652729911275  # two-sided 95 % quantile of Student's t at two degrees, from tables
T_1 = 12.706204736174698  # and at one


def table(values, **changes):
    return build(study(**changes), "smoke", runs(values))


def row(found, name, point=""):
    return next(row for row in found.rows if (row.name, row.point) == (name, point))


def entry(found, name, column=BLEU):
    return row(found, name).entries[column]


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


def differences(found):
    return "".join(note for note in found.notes if note.startswith("differences:"))


def test_a_seed_that_one_side_lacks_is_left_out_of_the_difference():
    found = table({"ln": [30.0, 40.0, 50.0], "bn": [29.0, None, 47.0]})
    gap = entry(found, "bn").difference
    assert (gap.mean, gap.n) == (-2.0, 2)
    assert gap.high == pytest.approx(-2 + T_1 * math.sqrt(2) / math.sqrt(2))
    assert row(found, "bn").outcome == "finished 2/2, 1 not run"
    assert "only seeds 1 3 are pairs (bn)" in differences(found)
    assert differences(table({"ln": [1.0, 2.0], "bn": [1.0, 3.0]})) == ""
    assert entry(found, "bn").summary.mean == 38.0
    one = table({"ln": [30.0, None], "bn": [29.0, 38.0]})
    assert entry(one, "bn").difference is None
    assert "seed 1 is the only pair, and a difference takes two (bn)" in differences(one)


def test_a_row_of_which_a_seed_diverged_is_counted_and_not_compared():
    lost = made("bn", 3, {BLEU: 1.0}, status="diverged")
    made_of = [*runs({"ln": [30.0, 40.0, 50.0], "bn": [29.0, 38.0]}), (planned("bn", 3), lost)]
    found = build(study(), "smoke", made_of)
    assert row(found, "bn").outcome == "diverged 1/3"
    assert row(found, "bn").seeds == (1, 2, 3)
    assert entry(found, "bn").summary.mean == 33.5
    assert entry(found, "bn").difference is None
    said = (
        "not compared with ln, seeds diverged: 1 of 3 of the row; the others are not a fair sample"
    )
    assert f"{said} (bn)" in differences(found)


def test_a_row_that_was_not_run_has_no_figures():
    found = table({"ln": [30.0], "bn": [None]})
    assert row(found, "bn").outcome == "no run" and entry(found, "bn").summary is None
    assert not any("no run" in note for note in found.notes)
    assert table({"ln": [None], "bn": [None]}).notes == ("no run has ended",)


NOISE = (0.0, 0.2, 0.1, 0.3, 0.15, 0.05, 0.25, 0.1)


def noisy(*means, seeds=5, shift=1):
    """Return values of rows whose differences scatter: each row has the noise in another order."""
    names = ("ln", "bn", "gn")
    return {
        name: [mean + NOISE[(shift * n * 3 + seed) % len(NOISE)] for seed in range(seeds)]
        for n, (name, mean) in enumerate(zip(names, means, strict=False))
    }


def bold(values, score=BLEU, **changes):
    found = build(study(columns=(score,), **changes), "smoke", runs(values, score))
    return [row.name for row in found.rows if row.entries[score].best]


def test_the_best_is_bold_only_where_it_is_better_than_every_other():
    assert bold(noisy(30.0, 20.0, 25.0)) == ["ln"]
    assert bold(noisy(30.0, 20.0, 30.05)) == []
    assert bold({"ln": noisy(30.0)["ln"]}) == []  # than no other
    assert bold(noisy(2.0, 3.0), "valid/loss") == ["ln"]


def test_fewer_than_five_seeds_make_nothing_bold():
    assert bold(noisy(30.0, 20.0, 25.0, seeds=4)) == []
    values = {**noisy(30.0, 20.0, 25.0), "gn": [25.0, 25.1, 25.2, 25.0]}
    assert bold(values) == []
    notes = table(values).notes
    assert any(note.startswith("rows of fewer than 5 seeds decide nothing") for note in notes)
    assert not any(note.startswith("rows of") for note in table(noisy(30.0, 20.0)).notes)


def test_p_is_corrected_for_all_pairs_of_rows():
    # Mean 0.32 and deviation 0.1924, so t = 3.720 at four degrees, whose distribution has a closed
    # form: p = 0.0205, which is below 0.05 alone and not after Holm over three pairs.
    gaps = [0.1, 0.2, 0.3, 0.4, 0.6]
    two = {"ln": [30.0 + gap for gap in gaps], "bn": [30.0] * 5}
    found = build(study(), "smoke", runs(two))
    cosine = math.cos(math.atan(3.7200 / 2))
    closed = 1 - math.sqrt(1 - cosine**2) * (1 + cosine**2 / 2)
    assert entry(found, "bn").p == pytest.approx(closed, abs=1e-5)
    assert bold(two) == ["ln"]
    assert bold({**two, "gn": [30.0, 30.0, 30.0, 30.0, 30.001]}) == []


def test_a_divergence_a_score_at_the_baseline_or_other_code_leave_nothing_bold():
    pairs = runs(noisy(30.0, 20.0))

    def is_bold(made_of):
        return any(row.entries[BLEU].best for row in build(study(), "smoke", made_of).rows)

    assert is_bold(pairs)
    for changes in ({"floors": {"bleu": 20.1}}, {"numerics": "new"}):
        changed = [(p, replace(run, **changes) if p.row == "bn" else run) for p, run in pairs]
        assert not is_bold(changed)
    for name in ("ln", "bn", "gn"):  # a row without any score counts, too
        lost = (planned(name, 6), made(name, 6, {BLEU: 1.0}, status="diverged"))
        assert not is_bold([*pairs, lost])


def test_rows_are_compared_with_the_baseline_at_their_own_point():
    made_of = [
        (
            planned(name, seed, f"batch_size={size}"),
            made(name, seed, {BLEU: float(size + seed)}, at=size),
        )
        for size in (8, 16)
        for name in ("ln", "bn")
        for seed in (1, 2)
    ]
    found = build(study(), "smoke", made_of)
    assert [row.label for row in found.rows] == [
        *("ln batch_size=8", "bn batch_size=8", "ln batch_size=16", "bn batch_size=16")
    ]
    for point in ("batch_size=8", "batch_size=16"):
        assert row(found, "bn", point).entries[BLEU].difference.mean == 0.0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"data": {"checksums": {"train": "other"}}}, "not comparable: data.checksums"),
        ({"signature": "tok:none"}, "test/bleu was computed in several ways"),
        ({"optim": {"lr": 1.0}}, "differ in optim.lr"),
        ({"seed": 1}, "seed 1 is given twice"),
    ],
)
def test_seeds_that_must_not_be_averaged_are_refused_and_the_rest_is_shown(changes, reason):
    other = made("bn", **{"seed": 2, "scores": {BLEU: 38.0}, **changes})
    made_of = [*runs({"ln": [30.0, 40.0], "bn": [29.0]}), (planned("bn", other.seed), other)]
    found = build(study(), "smoke", made_of)
    assert row(found, "bn").outcome == "refused" and entry(found, "bn").summary is None
    assert reason in row(found, "bn").problem
    assert any(note.startswith("bn: ") and reason in note for note in found.notes)
    assert entry(found, "ln").summary.mean == 35.0


def test_a_precision_that_rows_declare_is_compared():
    changes = {"precision": "bf16", "environment": {"precision": "bf16"}}
    bn = [(planned("bn", s), made("bn", s, {BLEU: 1.0 + s}, **changes)) for s in (1, 2)]
    rows = {"ln": ("norm=ln", "precision=fp32"), "bn": ("norm=ln", "precision=bf16")}
    found = build(study(rows=rows), "smoke", [*runs({"ln": [3.0, 4.0]}), *bn])
    assert entry(found, "bn").difference.mean == -1.0
    undeclared = build(study(), "smoke", [*runs({"ln": [3.0, 4.0]}), *bn])
    assert entry(undeclared, "bn").difference is None


def of_data(label, **changes):
    data = {"label": label, "languages": ["de", "en"]}
    return build(study(**changes), "smoke", [(planned("ln", 1), made("ln", 1, {}, data=data))])


def named(name="", grade="C", pilot=False):
    return {"smoke": Scale((), (1,), 0.5, "a folder", ("ln",), {}, grade, name, pilot=pilot)}


def test_the_title_names_the_data_of_the_records():
    assert of_data("Multi30k").title == "Translation, on Multi30k de-en (norms, scale=smoke)"
    short = of_data("Multi30k", scales=named("Multi30k, half"))
    assert short.title.startswith("Translation, on Multi30k, half (")
    wrong = of_data("Multi30k", scales=named("IWSLT'14"))
    assert wrong.title.startswith("Translation, on Multi30k de-en (")


def test_the_documents_figure_of_other_data_stands_apart_without_a_difference():
    figures = {"ln": {BLEU: 35.2, "stability": "stable"}}
    apart = of_data("Multi30k", figures=figures, document_data="IWSLT'14")
    assert apart.apart == "document (IWSLT'14)"
    assert apart.rows[0].said == "stable"
    own = of_data("IWSLT'14", figures=figures, scales=named("IWSLT'14", "A"))
    assert own.apart == ""
    assert of_data("Multi30k").apart == ""


def test_stability_counts_outcomes_divergences_and_spikes():
    records = [
        (planned("ln", seed), made("ln", seed, {BLEU: 1.0}, spikes=spikes))
        for seed, spikes in ((1, 0.0), (2, 3.0), (3, 5.0))
    ]
    assert (
        build(study(), "smoke", records).rows[0].stability == "finished 3/3; diverged 0; spikes 3"
    )
    lost = (planned("ln", 4), made("ln", 4, status="diverged", spikes=9.0))
    assert build(study(), "smoke", [*records, lost]).rows[0].stability == "diverged 1/4; spikes 4"


def test_notes_say_what_runs_were_made_for_and_how_they_ended():
    assert "a pilot: it decides nothing" in of_data("toy", scales=named("toy", pilot=True)).notes
    lost = [(planned("ln", seed), made("ln", seed, status="diverged")) for seed in (1, 2)]
    found = build(study(), "smoke", lost)
    assert row(found, "ln").outcome == "diverged 2/2" and "no run has finished" in found.notes
    chosen = made("ln", 1, {BLEU: 1.0}, validate={"average": 0, "select_by": "loss"})
    lengths = [
        (planned(name, 1), replace(chosen, budget=replace(chosen.budget, steps=1000 * n)))
        for n, name in enumerate(("ln", "bn", "gn", "in"), 1)
    ]
    notes = build(study(), "smoke", lengths).notes
    assert notes[0].endswith("1,000 to 4,000 updates")
    assert "tested: the weights of the best valid/loss, not the last" in notes


def test_many_rows_have_few_notes_and_the_rest_is_for_the_page():
    rows = {f"r{n}": (f"norm=n{n}",) for n in range(20)}
    rates = {row: (f"optim.lr={n}",) for n, row in enumerate(rows)}
    size = Scale((), (1, 2, 3), 0.5, "built in", tuple(rows), {}, rates=rates)
    made_of = [
        (planned(row, s), made(row, s, {BLEU: 20.0 + s}))
        for row in rows
        for s in ((1, 2) if row == "r1" else (1, 2, 3))
    ]
    found = build(study(rows=rows, scales={"smoke": size}), "smoke", made_of)
    assert len(found.notes) < 9
    (rates_note,) = [note for note in found.details if note.startswith("tuning chose")]
    assert "optim.lr=0 (r0)" in rates_note and "optim.lr=19 (r19)" in rates_note


def test_a_score_at_the_untrained_baseline_is_named():
    record = replace(made("ln", 1, {"valid/loss": 6.2}), floors={"loss": 6.67, "bleu": 3.0})
    notes = build(study(), "smoke", [(planned("ln", 1), record)]).notes
    (note,) = [note for note in notes if note.startswith("untrained baseline: valid/loss 6.670")]
    assert note.endswith("not clear of it, so a difference says nothing: valid/loss (ln)")


def test_a_run_that_never_learned_and_one_that_sees_the_future_are_marked_next_to_the_others():
    flat = {1: 6.6, 2: 2.0}  # test losses; the untrained baseline has 6.67
    made_of = [
        (planned(row, seed), replace(made(row, seed, {BLEU: 1.0, "test/loss": loss}), **changes))
        for row, changes in (
            ("ln", {"floors": {"loss": 6.67}}),
            ("bn", {"floors": {"loss": 60.0}, "sees_future": ["InstanceNorm"]}),
        )
        for seed, loss in flat.items()
    ]
    table = build(study(), "smoke", made_of)
    ln, bn = (row.stability.split("; ") for row in table.rows)
    assert "did not learn 1/2" in ln and "sees the future" not in ln
    assert "sees the future" in bn and not any("learn" in part for part in bn)
    (note,) = [note for note in table.notes if note.startswith("sees the future")]
    assert note.startswith("sees the future: bn (InstanceNorm): ")
