"""The best row of a column: better than every other one, over five seeds, after Holm."""

import math

import pytest
from msgspec.structs import replace

from tests.reports.handmade import BLEU, build, entry, made, noisy, run, runs, study, table


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


def test_nothing_is_bold_if_a_row_was_refused_or_lacks_the_score():
    every = runs(noisy(30.0, 20.0))
    refused = [
        run(made("gn", seed, {BLEU: 40.0 + seed}, data={"checksums": {"train": text}}), "gn", seed)
        for seed, text in enumerate("aaaab", 1)
    ]
    unscored = [run(made("gn", seed, {"valid/loss": 1.0}), "gn", seed) for seed in range(1, 6)]
    for row_of_gn in (refused, unscored):
        found = build(study(), [*every, *row_of_gn])
        assert not any(each.entries[BLEU].best for each in found.rows)
    not_run = [run(None, "gn", seed) for seed in range(1, 6)]
    assert any(each.entries[BLEU].best for each in build(study(), [*every, *not_run]).rows)
