import pytest
import torch

from normlab.findings.relative_change import relative_change
from normlab.formats import duration
from normlab.norms.layer import LayerNorm


def test_tensors_of_different_shapes_are_refused():
    assert relative_change(torch.ones(2, 3), torch.ones(2, 3)) == 0
    with pytest.raises(Exception, match="Type-check error"):
        relative_change(torch.ones(2, 3), torch.ones(2, 4))


def test_an_argument_of_the_wrong_type_is_refused():
    with pytest.raises(Exception, match="violates type hint"):
        duration("3")


def test_a_field_of_the_wrong_type_is_refused():
    with pytest.raises(Exception, match="violates type hint"):
        LayerNorm(4, eps="small")
