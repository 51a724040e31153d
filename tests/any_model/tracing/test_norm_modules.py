"""Which modules of any model are norms."""

import pytest
import torch
from torch import nn

from normlab import make_norm
from normlab.any_model.tracing.norm_modules import is_norm, running_statistics


class LlamaRMSNorm(nn.Module):
    """A norm only by the name of its class."""


class PreNormBlock(nn.Module):
    """Has "Norm" in its name and contains a norm, but is not one."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(4)


def with_buffers(**buffers):
    """Return a module whose class name says nothing about norms."""
    module = nn.Module()
    for name, value in buffers.items():
        module.register_buffer(name, torch.full((4,), value))
    return module


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (nn.LayerNorm(4), True),
        (nn.BatchNorm2d(4), True),
        (make_norm("dyt", 4), True),
        (LlamaRMSNorm(), True),
        (torch.jit.script(nn.LayerNorm(4)), True),
        (with_buffers(running_mean=1.0, running_std=2.0), True),
        (with_buffers(running_mean=1.0), False),
        (PreNormBlock(), False),
        (nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), False),
        (nn.Linear(4, 4), False),
    ],
    ids=lambda value: value if isinstance(value, bool) else type(value).__name__,
)
def test_a_module_is_a_norm_by_its_class_its_name_or_its_statistics(module, expected):
    assert is_norm(module) == expected


@pytest.mark.parametrize(
    ("buffers", "mean", "var"),
    [
        ({"running_mean": 1.0, "running_var": 3.0}, 1.0, 3.0),
        ({"running_mean": 1.0, "running_std": 3.0}, 1.0, 9.0),
        ({"running_square": 3.0}, None, 3.0),
    ],
)
def test_running_statistics_are_read_under_three_naming_conventions(buffers, mean, var):
    statistics = running_statistics(with_buffers(**buffers))
    assert statistics and statistics.var.tolist() == [var] * 4
    expected = None if mean is None else [mean] * 4
    assert (statistics.mean.tolist() if statistics.mean is not None else None) == expected
