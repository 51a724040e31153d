"""Every published norm computes what the code of its authors computes: output, gradients, state."""

import numpy as np
import pytest
from torch import nn

from normlab.build import make_norm
from normlab.models.linear import Linear
from normlab.norms.base import Stream
from scripts.parity import TRACES, trace
from scripts.parity_subjects import SHAPE, SUBJECTS, Driver


class Centered(nn.Module):
    """A product with centred rows, then a norm."""

    def __init__(self, norm):
        super().__init__()
        self.linear = Linear(norm.dim, norm.dim)
        self.linear.centered = True
        self.norm = norm

    def forward(self, x, stream):
        return self.norm(self.linear(x), stream)

    def penalty(self):
        return self.norm.penalty()


def _begin(module, step):
    """Let step and batches stand as after so many steps of one micro-batch each."""
    norm = module.norm if isinstance(module, Centered) else module
    norm.begin_step(step, None)
    norm.batches = step - 1


OURS = Driver(
    forward=lambda norm, x, valid: norm(x, Stream(valid)),
    begin=_begin,
    penalty=lambda norm: norm.penalty(),
)


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_norm_equals_its_authors_code_at_every_step(name):
    subject = SUBJECTS[name]
    theirs = np.load(TRACES / f"{name}.npz")
    norm = make_norm(subject.option, SHAPE[2], **subject.values)
    norm = Centered(norm) if subject.centered else norm
    own = ({name: name for name in names} for names in (subject.names, subject.tables))
    ours = trace(norm, subject, OURS, *own)
    assert ours.keys() == set(theirs.files)
    for figure in theirs.files:
        expected = theirs[figure] / subject.factor
        np.testing.assert_allclose(
            ours[figure], expected, rtol=subject.tolerance, atol=subject.tolerance, err_msg=figure
        )


def test_no_trace_is_left_without_a_subject():
    assert {path.stem for path in TRACES.glob("*.npz")} == set(SUBJECTS)
