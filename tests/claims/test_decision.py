"""The decision table, line by line, and the interim analyses that spend its error rate."""

import random
import re
from pathlib import Path

import pytest

from normlab.claims import decision
from normlab.claims.decision import (
    CONSTANT,
    ERROR,
    LOOKS,
    corrected_for_look,
    counts,
    decide,
    sequential,
)
from normlab.config.yaml_files import read_yaml
from normlab.metrics.significance import t_interval

SPREAD = (-0.2, -0.1, 0.0, 0.1, 0.2)  # its 95 % interval is +-0.196, its 90 % one +-0.151


def around(mean, times=1.0):
    return [mean + times * each for each in SPREAD]


HALF = 0.5 - t_interval(around(0.5)).low


@pytest.mark.parametrize(
    ("values", "difference", "equality"),
    [
        (around(0.0), "no difference", "supported"),
        # Entirely below 0 and within the margin: the first line that applies decides.
        (around(-0.25), "no difference", "supported"),
        # Around 0.33 the I90 ends at 0.481 and the I95 at 0.526.
        (around(0.33), "no difference", "supported"),
        (around(0.36), "undecided", "undecided"),
        (around(1.0), "supported", "contradicted"),
        (around(-1.0), "contradicted", "contradicted"),
        # I90 extends below -m; I95 is below 0 but not below -m.
        (around(-0.45), "contradicted", "undecided"),
        (around(0.45), "undecided", "undecided"),
        (around(0.0, 10), "undecided", "undecided"),
        # Crossing a bound by a hair changes the verdict.
        (around(0.5 + HALF + 1e-9), "supported", "contradicted"),
        (around(0.5 + HALF - 1e-9), "undecided", "undecided"),
    ],
)
def test_the_first_matching_line_of_the_decision_table_decides(values, difference, equality):
    assert decide(values, margin=0.5, equality=False).verdict == difference
    assert decide(values, margin=0.5, equality=True).verdict == equality


@pytest.mark.parametrize("equality", [False, True])
def test_identical_differences_in_all_seeds_leave_the_part_undecided(equality):
    for values in ([0.0] * 5, [2.0 + 1e-15, *[2.0] * 4], [-2.0] * 12):
        found = decide(values, margin=0.5, equality=equality)
        assert (found.verdict, found.reason, found.estimate) == ("undecided", CONSTANT, None)
    # float32 rounding counts as spread: two ways to compute the same thing then agree.
    rounded = [1e-8, 0.0, 0.0, 0.0, -1e-8]
    assert decide(rounded, margin=0.5, equality=False).verdict == "no difference"
    with pytest.raises(ValueError, match="at least two"):
        decide([2.0], margin=0.5, equality=equality)


def test_the_p_value_is_below_the_error_exactly_when_the_part_is_decided():
    draw = random.Random(2)
    seen = set()
    for _ in range(200):
        n, error = draw.choice([(5, 0.01), (8, 0.015), (12, 0.025), (6, 0.05)])
        mean = draw.uniform(-1, 1)
        values = [draw.gauss(mean, draw.uniform(0.01, 0.6)) for _ in range(n)]
        for equality in (False, True):
            found = decide(values, margin=0.3, equality=equality, error=error)
            assert (found.p.observed < error) == (found.verdict != "undecided")
            seen.add(found.verdict)
    assert seen == {"supported", "contradicted", "no difference", "undecided"}


def test_the_shares_of_the_looks_sum_to_the_error():
    assert sum(look.share for look in LOOKS) == pytest.approx(ERROR)
    assert [look.corrected(0.01) for look in LOOKS] == pytest.approx([0.05, 0.1 / 3, 0.02])


def test_the_docstring_lists_every_reason_why_a_part_is_open():
    table = decision.__doc__.partition("A part is undecided")[2]
    names = re.findall(r"(?m)^    (\w+(?:\.\.\.)?) ", table)
    texts = read_yaml(Path(decision.__file__).parent / "templates" / "reasons.yaml").keys()
    families = [name.removesuffix("...") for name in names if name.endswith("...")]
    others = {key for key in texts if not key.startswith(tuple(families))}
    assert set(names) - {f"{name}..." for name in families} == others - {"final"}


def looks_taken(values):
    taken = []

    def judge(chosen, look):
        taken.append(tuple(chosen))
        differences = [values[s] for s in chosen]
        return corrected_for_look(
            decide(differences, margin=0.5, equality=False, error=look.share), look
        )

    return *sequential(list(values), judge, lambda seeds: [(len(seeds), len(seeds))]), taken


def test_a_look_uses_the_lowest_seeds_and_leaves_the_rest_for_the_next_look():
    values = {seed: 2.0 + 0.01 * seed for seed in (9, 7, 5, 3, 1, 2, 4)}
    look, found, taken = looks_taken(values)
    assert taken == [(1, 2, 3, 4, 5)] and (look.seeds, found.verdict) == (5, "supported")


def test_a_part_that_was_decided_at_a_look_stays_decided():
    values = dict(enumerate([2.0, 2.01, 1.99, 2.02, 1.98, 30.0, -30.0, 9.0], 1))
    look, found, taken = looks_taken(values)
    assert len(taken) == 2 and (look.seeds, found.verdict) == (5, "supported")


def test_repeated_looks_keep_the_false_positive_rate_below_the_error():
    draw = random.Random(3)
    wrong = 0
    for _ in range(400):
        _, found, _ = looks_taken({seed: draw.gauss(0, 1) for seed in range(1, 13)})
        wrong += found.verdict in ("contradicted", "supported")
    assert wrong / 400 < 0.05 + 3 * (0.05 * 0.95 / 400) ** 0.5


@pytest.mark.parametrize(
    ("side", "reference", "fails", "error", "verdict"),
    [
        # With five seeds, all against none is significant.
        ((0, 5), (5, 5), True, 0.01, "supported"),
        ((0, 5), (5, 5), False, 0.01, "contradicted"),
        ((1, 5), (5, 5), True, 0.01, "undecided"),
        # A side that always trains does not fail, once there are eight seeds.
        ((5, 5), (5, 5), True, 0.01, "undecided"),
        ((8, 8), (8, 8), True, 0.015, "contradicted"),
        ((8, 8), (8, 8), False, 0.015, "supported"),
        ((7, 8), (8, 8), False, 0.015, "undecided"),
        # Without a reference, counts are compared with one half.
        ((5, 5), None, False, 0.05, "undecided"),
        ((0, 8), None, False, 0.015, "contradicted"),
        # A part that says every seed trains is neither supported nor contradicted if most do.
        ((11, 12), None, False, 0.025, "undecided"),
        ((1, 12), None, False, 0.025, "contradicted"),
        ((11, 12), None, True, 0.025, "contradicted"),
    ],
)
def test_the_counts_of_trained_seeds_decide_whether_a_side_trains(
    side, reference, fails, error, verdict
):
    assert counts(side, reference, fails=fails, error=error).verdict == verdict
