"""The code of the articles runs, or raises the error of torch."""

import pytest
import torch
from torch import nn

from tests.claim_checks.by_hand import numbers, text_of


def test_the_code_of_the_articles_runs_or_raises_the_error_of_torch():
    with pytest.raises(RuntimeError, match="running_mean should contain 4 elements not 3"):
        nn.BatchNorm1d(3)(torch.randn(2, 4, 3))
    assert numbers("code.article_1")[1] == [True, False, True]
    assert "running_mean should contain 4 elements not 3" in text_of("code.article_1")
    assert numbers("code.article_3")[1] == [True, True]
    assert "[2, 3, 4] and [2, 64, 32, 32]" in text_of("code.article_3")
