"""Runs outside any study, arranged as rows and a grid."""

from normlab.reports.arrangement.unplanned import arrange
from normlab.reports.runs import unplaced_run
from tests.reports.handmade import BLEU, made


def test_placements_of_each_norm_are_an_axis_but_rates_tuned_per_size_are_not():
    placed = [
        unplaced_run(
            None,
            made(norm, 1, {BLEU: 30.0}, placement={"option": place}, choices={"placement": place}),
        )
        for norm in ("ln", "bn")
        for place in ("pre", "post")
    ]
    assert [*arrange(placed).axes] == ["placement"]
    assert [*arrange(placed).rows] == ["ln", "bn"]
    tuned = [
        unplaced_run(None, made(norm, 1, {BLEU: 30.0}, batch_size=size, optim={"lr": rate}))
        for norm in ("ln", "bn")
        for size, rate in ((8, 1e-3), (128, 4e-3))
    ]
    assert [*arrange(tuned).axes] == ["batch_size"]
    assert [*arrange(tuned).rows] == ["ln", "bn"]
