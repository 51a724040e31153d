"""Do the other rows of a batch change the output of a row?"""

import pytest
import torch
from torch import Tensor, nn

import normlab
from tests.any_model.toys import FAULTY, X, embedded, finding


def test_float32_rounding_is_also_measured_for_the_shortest_row(batch):
    token = batch["input_ids"][1, 0]

    class Rounding(nn.Embedding):
        def forward(self, input_ids, attention_mask):
            y = super().forward(input_ids)
            narrow = len(y) > 1 and y.dtype != torch.float64
            return y * (1 + 1e-3 * narrow * (input_ids == token)[..., None])

    found = normlab.inspect(Rounding(50, 4), [batch], checks=["batch_mates"]).findings[
        "batch_mates"
    ]
    assert found.verdict == "fine" and "float32 rounding changes the output by 0.0" in found.answer
    assert 1e-4 < found.values["row 1 among 3"]["in_model_dtype"] < 1e-3


def centered(x: Tensor) -> Tensor:
    """Subtract the mean over the batch, which leaks."""
    return x - x.mean(0) / 2


@FAULTY
@pytest.mark.parametrize("names", [["load", "scores"], ["scores", "load"]])
def test_outputs_without_a_batch_axis_are_not_compared(names, faulty):
    def outputs(_, x: Tensor, mask: Tensor) -> dict[str, Tensor]:
        found = {"scores": centered(x) if faulty else x, "load": x.mean((0, 1))}
        return {name: found[name] for name in names}

    case = embedded(outputs)
    found = finding(case.model, "batch_mates", case.batches[0])
    assert found.verdict == ("broken" if faulty else "fine")


@FAULTY
def test_each_row_is_compared_with_its_own_entry_of_a_list(faulty):
    def rows(_, x: Tensor, mask: Tensor) -> list[Tensor]:
        x = centered(x) if faulty else x
        return [row[real > 0] for row, real in zip(x, mask, strict=True)]

    case = embedded(rows)
    found = finding(case.model, "batch_mates", case.batches[0])
    assert found.verdict == ("broken" if faulty else "fine")


def test_the_module_at_fault_is_found_in_a_tuple_of_as_many_outputs_as_rows():
    class Mix(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + x.mean(0) / 2

    model = nn.Sequential(nn.Linear(X.shape[-1], 4), Mix())
    batch = X[:3] * torch.tensor([9, 1, 9])[:, None, None]  # the middle row changes most
    found = finding(model, "batch_mates", batch, forward=lambda m, x: (m(x), x, x.mean(1)))
    assert (found.verdict, found.module) == ("broken", "1")


def test_a_model_whose_outputs_have_no_batch_axis_is_not_asked():
    model = nn.Linear(X.shape[-1], 3)
    found = finding(model, "batch_mates", forward=lambda model, x: model(x).mean((0, 1)))
    assert found.verdict == "does not apply" and "no output has a batch axis" in str(found)
