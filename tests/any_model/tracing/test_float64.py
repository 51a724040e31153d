"""A forward pass in float64, without converting weights."""

from threading import Thread

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from normlab.any_model.tracing.float64 import float64_operations


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_operation_runs_in_float64_and_weights_keep_their_dtype(dtype):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(4, 4, 3), nn.Flatten(), nn.Linear(24, 3)).to(dtype)
    x = torch.randn(2, 4, 8, dtype=dtype)
    with torch.no_grad(), float64_operations():
        y = model(x).float() + torch.ones(3, dtype=torch.bfloat16)
    assert y.dtype == torch.float64 and model[0].weight.dtype == dtype
    assert torch.equal(y, model.double()(x.double()) + 1)


def test_other_threads_keep_their_dtype():
    lstm, x, conv = nn.LSTM(4, 3), torch.randn(5, 2, 4), F.conv1d
    failed: list[str] = []

    def use():
        try:
            y = lstm(F.conv1d(x, torch.ones(2, 2, 1)))[0]
            failed.extend([str(y.dtype)] * (y.dtype != torch.float32))
        except Exception as error:
            failed.append(str(error))

    with torch.no_grad(), float64_operations():
        assert F.conv1d is conv and lstm(x)[0].dtype == torch.float64
        thread = Thread(target=use)
        thread.start()
        thread.join()
    assert failed == []


def test_an_operation_without_float64_runs_in_float32_and_is_reported():
    x = torch.randn(4)
    with torch.no_grad(), float64_operations() as mode:
        y = torch.quantize_per_tensor(2 * x, 0.1, 0, torch.qint8).dequantize() + 1
    assert y.dtype == torch.float64 and mode.without_float64 == {"aten::quantize_per_tensor"}
    with torch.no_grad(), float64_operations(), pytest.raises(RuntimeError, match="size of tensor"):
        x + torch.ones(3)
