"""Keel: the factors of its residuals."""

from normlab.norms.base import NoNorm
from normlab.placements.base import Residual
from normlab.placements.pre import PreResidual
from tests.models.small import seq2seq


def test_keel_scales_by_the_number_of_residuals_and_starts_with_a_pre_norm_one():
    model = seq2seq("ln", "keel")
    for stack, connections in ((model.encoder, 4), (model.decoder, 6)):
        first, *others = (m for m in stack.modules() if isinstance(m, Residual))
        assert type(first) is PreResidual and isinstance(stack.final_norm, NoNorm)
        assert [residual.factor for residual in others] == [connections] * (connections - 1)
