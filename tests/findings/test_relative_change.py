import math

import pytest
import torch

from normlab.findings.relative_change import percent, relative_change, why_not_finite

NAN, INF = math.nan, math.inf


def test_a_change_is_relative_to_the_base():
    base = torch.tensor([3.0, 4.0])
    assert relative_change(base + torch.tensor([0.3, 0.4]), base) == pytest.approx(0.1)
    assert relative_change(base, torch.zeros(2)) == INF
    assert relative_change(torch.zeros(2), torch.zeros(2)) == 0
    shown = [percent(x) for x in (0.0, 1.2345, 1 - 1e-9, 0.01, 2e-5)]
    assert shown == ["0.00 %", "123 %", "100 %", "1.00 %", "0.00200 %"]


@pytest.mark.parametrize(
    ("values", "base", "change", "why"),
    [
        ((NAN, 4.0), (NAN, 2.0), 1.0, ""),
        ((-INF, 2.0), (-INF, 2.0), 0.0, ""),
        ((NAN, 2.0), (1.0, 2.0), INF, "became NaN"),
        ((1.0, 2.0), (NAN, 2.0), INF, "was NaN"),
        ((INF, 2.0), (-INF, 2.0), INF, "became infinite"),
        ((1.0, 0.0), (0.0, 0.0), INF, "was 0"),
    ],
)
def test_equal_nans_and_infinities_are_not_a_change(values, base, change, why):
    values, base = torch.tensor(values), torch.tensor(base)
    assert relative_change(values, base) == pytest.approx(change)
    assert why_not_finite(values, base) == why
