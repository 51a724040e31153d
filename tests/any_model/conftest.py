"""A small padded batch, and a fixed seed for each test."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture
def batch():
    torch.manual_seed(0)
    ids = torch.randint(1, 50, (3, 12))
    mask = (torch.arange(12) < torch.tensor([[12], [7], [9]])).long()
    return {"input_ids": ids * mask, "attention_mask": mask}
