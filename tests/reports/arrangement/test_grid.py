"""The axes of a sweep's grid."""

from normlab.reports.arrangement.grid import grid_of, swept_keys
from tests.reports.arrangement.test_row_names import settings


def axes(experiments):
    """Return the swept settings of the grid that experiments form, and its axes."""
    grid = grid_of(experiments)
    return None if grid is None else (grid.swept, grid.axes)


def test_a_sweep_is_a_grid_if_several_rows_share_its_points_and_one_has_all_of_them():
    crossed = [settings(norm=norm, batch_size=n) for norm in ("ln", "bn") for n in (8, 32)]
    assert axes(crossed) == (["batch_size"], ["batch_size"])
    assert axes(crossed[:2]) is None, "there is only one row"
    assert axes(crossed[:3]) == (["batch_size"], ["batch_size"]), "bn may lack a point"
    assert axes([*crossed[:3], settings(norm="bn", batch_size=128)]) is None, "no row has all three"
    words = [
        settings(norm=norm, optim={"name": o}) for norm in ("ln", "bn") for o in ("sgd", "adam")
    ]
    assert swept_keys(words) == [], "only numbers and placements are axes"


def test_a_rate_tuned_per_batch_size_does_not_become_an_axis():
    rates = {8: 1e-3, 32: 2e-3}
    tuned = [
        settings(norm=norm, batch_size=n, optim={"lr": rate})
        for norm in ("ln", "bn")
        for n, rate in rates.items()
    ]
    assert axes(tuned) == (["batch_size", "optim.lr"], ["batch_size"])
    grid = grid_of(tuned)
    assert grid is not None and grid.point(1) == {"batch_size": 32}
    crossed = [
        settings(norm=norm, batch_size=n, optim={"lr": rate})
        for norm in ("ln", "bn")
        for n in rates
        for rate in rates.values()
    ]
    assert axes(crossed) == (["batch_size", "optim.lr"], ["batch_size", "optim.lr"])
