"""The table of decisions, line by line, and the looks that spend its error."""

import random

import pytest

from normlab.claims.judge import (
    CONSTANT,
    ERROR,
    LOOKS,
    against,
    alone,
    decide,
    interval_text,
    less_often,
    of_decision,
    reached,
    sequential,
)
from normlab.metrics.spread import t_interval

SPREAD = (-0.2, -0.1, 0.0, 0.1, 0.2)  # its 95 % interval is +-0.196, its 90 % one +-0.151


def around(mean, times=1.0):
    return [mean + times * each for each in SPREAD]


@pytest.mark.parametrize(
    ("values", "difference", "equality"),
    [
        (around(0.0), "no difference", "supported"),
        # Wholly below 0 and within the margin: the first line that holds decides.
        (around(-0.25), "no difference", "supported"),
        (around(0.25), "no difference", "supported"),
        (around(1.0), "supported", "contradicted"),
        (around(-1.0), "contradicted", "contradicted"),
        # I90 reaches over -m, I95 lies below 0 and not below -m.
        (around(-0.45), "contradicted", "undecided"),
        (around(0.45), "undecided", "undecided"),
        (around(0.0, 10), "undecided", "undecided"),
        (around(1.0, 10), "undecided", "undecided"),
    ],
)
def test_the_first_line_that_holds_decides(values, difference, equality):
    assert decide(values, margin=0.5, equality=False).verdict == difference
    assert decide(values, margin=0.5, equality=True).verdict == equality


def test_the_narrow_interval_is_that_of_90_percent():
    # Around 0.33 the I90 ends at 0.481 and the I95 at 0.526.
    assert decide(around(0.33), margin=0.5, equality=False).verdict == "no difference"
    assert decide(around(0.36), margin=0.5, equality=False).verdict == "undecided"


def test_an_undecided_part_says_what_is_open():
    shown = decide(around(0.45), margin=0.5, equality=False)
    assert "direction is shown" in shown.reason
    wide = decide(around(0.0, 10), margin=0.5, equality=False)
    assert wide.reason == "" and wide.smallest == pytest.approx(1.58 * 1.682, rel=0.01)


@pytest.mark.parametrize("equality", [False, True])
@pytest.mark.parametrize("each", [0.0, 2.0, -2.0])
def test_seeds_that_do_not_differ_decide_nothing(each, equality):
    for values in ([each] * 5, [each + 1e-15, *[each] * 4], [each] * 12):
        found = decide(values, margin=0.5, equality=equality)
        assert (found.verdict, found.reason, found.interval) == ("undecided", CONSTANT, None)
    # Rounding of float32 is a spread: it says that two ways to compute give the same.
    assert (
        decide([1e-8, 0.0, 0.0, 0.0, -1e-8], margin=0.5, equality=False).verdict == "no difference"
    )
    with pytest.raises(ValueError, match="at least two"):
        decide([each], margin=0.5, equality=equality)


def test_a_margin_of_zero_never_shows_that_there_is_no_difference():
    assert decide([0.0] * 5, margin=0.0, equality=False).verdict == "undecided"


def test_swapping_the_sides_turns_a_difference_round_and_leaves_equality():
    draw = random.Random(1)
    turned = {"supported": {"contradicted"}, "no difference": {"no difference"}}
    for _ in range(200):
        n = draw.choice([5, 8, 12])
        values = [draw.gauss(draw.uniform(-1, 1), draw.uniform(0.05, 1)) for _ in range(n)]
        swapped = [-value for value in values]
        one, other = (decide(v, margin=0.3, equality=False).verdict for v in (values, swapped))
        assert other in turned.get(one, {one, "supported", "undecided", "contradicted"})
        same = [decide(v, margin=0.3, equality=True).verdict for v in (values, swapped)]
        assert same[0] == same[1]


def test_the_p_value_is_below_the_error_exactly_where_the_part_is_decided():
    draw = random.Random(2)
    seen = set()
    for _ in range(300):
        n, error = draw.choice([(5, 0.01), (8, 0.015), (12, 0.025), (6, 0.05)])
        mean = draw.uniform(-1, 1)
        values = [draw.gauss(mean, draw.uniform(0.01, 0.6)) for _ in range(n)]
        for equality in (False, True):
            found = decide(values, margin=0.3, equality=equality, error=error)
            assert (found.p < error) == (found.verdict != "undecided")
            seen.add(found.verdict)
    assert seen == {"supported", "contradicted", "no difference", "undecided"}


def test_a_bound_that_is_crossed_by_a_hair_changes_the_verdict():
    half = 0.5 - t_interval(around(0.5)).low
    assert decide(around(0.5 + half + 1e-9), margin=0.5, equality=False).verdict == "supported"
    assert decide(around(0.5 + half - 1e-9), margin=0.5, equality=False).verdict == "undecided"
    assert decide(around(-half - 1e-9), margin=0.01, equality=False).verdict == "contradicted"
    assert decide(around(-half + 1e-9), margin=0.01, equality=False).verdict == "undecided"


def test_looks_spend_the_whole_error_and_no_more():
    assert sum(look.share for look in LOOKS) == pytest.approx(ERROR)
    assert [look.seeds for look in LOOKS] == [5, 8, 12]
    assert [[look.seeds for look in reached(n)] for n in (4, 5, 7, 8, 30)] == [
        [], [5], [5], [5, 8], [5, 8, 12],
    ]  # fmt: skip
    assert [look.corrected(0.01) for look in LOOKS] == pytest.approx([0.05, 0.1 / 3, 0.02])


def looks_taken(seeds, values):
    taken = []

    def judge(chosen, look):
        taken.append((tuple(chosen), look.share))
        differences = [values[s] for s in chosen]
        return of_decision(decide(differences, margin=0.5, equality=False, error=look.share), look)

    return *sequential(seeds, judge), taken


def test_seeds_between_two_looks_wait_for_the_next_and_the_lowest_are_looked_at():
    values = {seed: 2.0 + 0.01 * seed for seed in range(1, 20)}
    look, decision, taken = looks_taken([9, 7, 5, 3, 1, 2, 4], values)
    assert taken == [((1, 2, 3, 4, 5), 0.01)] and look.seeds == 5
    assert len(taken[0][0]) == 5 and decision.verdict == "supported"


def test_a_part_that_was_decided_at_a_look_stays_decided():
    values = dict(enumerate([2.0, 2.01, 1.99, 2.02, 1.98, 30.0, -30.0, 9.0], 1))
    look, decision, taken = looks_taken(list(values), values)
    assert len(taken) == 2 and look.seeds == 5 and decision.verdict == "supported"


def test_looks_do_not_err_more_often_than_they_may():
    draw = random.Random(3)
    wrong = 0
    for _ in range(400):
        values = {seed: draw.gauss(0, 1) for seed in range(1, 13)}
        _, decision, _ = looks_taken(list(values), values)
        wrong += decision.verdict == "contradicted" or decision.verdict == "supported"
    assert wrong / 400 < 0.05 + 3 * (0.05 * 0.95 / 400) ** 0.5


def test_five_of_five_against_none_is_shown_at_the_first_look():
    assert less_often((0, 5), (5, 5), error=0.01).verdict == "supported"
    assert less_often((5, 5), (0, 5), error=0.01).verdict == "contradicted"
    assert less_often((1, 5), (5, 5), error=0.01).verdict == "undecided"
    assert less_often((0, 5), (5, 5), error=0.01).p == pytest.approx(2 / 252)


def test_who_trains_every_time_does_not_fail_once_there_are_eight():
    assert against((5, 5), (5, 5), fails=True, error=0.01).verdict == "undecided"
    assert against((8, 8), (8, 8), fails=True, error=0.015).verdict == "contradicted"
    assert against((8, 8), (8, 8), fails=False, error=0.015).verdict == "supported"
    assert against((7, 8), (8, 8), fails=False, error=0.015).verdict == "undecided"
    assert against((0, 8), (8, 8), fails=False, error=0.015).verdict == "contradicted"


def test_without_a_reference_counts_are_held_against_a_half_by_an_exact_test():
    assert alone((5, 5), fails=False, error=0.07).verdict == "supported"
    assert alone((5, 5), fails=False, error=0.05).verdict == "undecided"
    assert alone((8, 8), fails=False, error=0.015).p == pytest.approx(2 * 0.5**8)
    assert alone((0, 8), fails=False, error=0.015).verdict == "contradicted"
    assert alone((0, 8), fails=True, error=0.015).verdict == "supported"
    assert alone((4, 8), fails=True, error=0.015).p == 1
    # What says of every seed that it trains is not supported by most of them, nor contradicted.
    assert alone((11, 12), fails=False, error=0.025).verdict == "undecided"
    assert alone((1, 12), fails=False, error=0.025).verdict == "contradicted"
    assert alone((11, 12), fails=True, error=0.025).verdict == "contradicted"


def test_an_end_is_not_written_like_a_bound_that_it_is_not():
    assert interval_text(1.2323, 1.2147, 1.2498, (0.75, 1.0, 1.25)) == "1.2323 [1.2147, 1.2498]"
    assert interval_text(1.2323, 1.2147, 1.2698, (0.75, 1.0, 1.25)) == "1.23 [1.21, 1.27]"
    assert interval_text(2.27, 0.5, 3.45, (0.5,)) == "2.27 [0.50, 3.45]"
    assert interval_text(0.5, -0.003, 1.0, (0.0,)) == "0.500 [-0.003, 1.000]"
