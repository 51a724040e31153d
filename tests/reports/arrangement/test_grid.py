"""The axes of a sweep's grid."""

from normlab.reports.arrangement.grid import follows, grid_of, swept_keys, values_of
from tests.records.examples import config


def test_a_sweep_is_a_grid_if_several_rows_share_its_points_and_one_has_all_of_them():
    crossed = [config(norm=norm, batch_size=n) for norm in ("ln", "bn") for n in (8, 32)]
    assert grid_of(crossed) == ["batch_size"]
    assert grid_of(crossed[:2]) == [], "there is only one row"
    assert grid_of(crossed[:3]) == ["batch_size"], "bn may lack a point"
    assert grid_of([*crossed[:3], config(norm="bn", batch_size=128)]) == [], "no row has all three"
    words = [config(norm=norm, optim={"name": o}) for norm in ("ln", "bn") for o in ("sgd", "adam")]
    assert swept_keys(words) == [], "only numbers and placements are axes"


def test_a_rate_tuned_per_batch_size_is_no_axis_of_its_own():
    rates = {8: 1e-3, 32: 2e-3}
    tuned = [
        config(norm=norm, batch_size=n, optim={"lr": rate})
        for norm in ("ln", "bn")
        for n, rate in rates.items()
    ]
    axes = ["batch_size", "optim.lr"]
    assert follows("optim.lr", axes, values_of(tuned))
    assert not follows("batch_size", axes, values_of(tuned))
    crossed = [config(batch_size=n, optim={"lr": rate}) for n in rates for rate in rates.values()]
    assert not follows("optim.lr", axes, values_of(crossed))
