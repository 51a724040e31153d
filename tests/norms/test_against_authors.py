"""Every published norm computes what the code of its authors computes: output and gradients."""

import numpy as np
import pytest
import torch

from normlab.build import make_norm
from normlab.norms.base import Stream
from scripts.parity import SHAPE, SUBJECTS, TRACES, trace


def _stream() -> Stream:
    return Stream(torch.ones(SHAPE[:2], dtype=torch.bool))


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_norm_equals_its_authors_code_at_every_step(name):
    subject = SUBJECTS[name]
    theirs = np.load(TRACES / f"{name}.npz")
    norm = make_norm(subject.option, SHAPE[2], **subject.values)
    ours = trace(norm, {own: own for own in subject.names}, lambda norm, x: norm(x, _stream()))
    assert ours.keys() == set(theirs.files)
    for figure in theirs.files:
        expected = theirs[figure] / subject.factor
        np.testing.assert_allclose(
            ours[figure], expected, rtol=subject.tolerance, atol=subject.tolerance, err_msg=figure
        )


def test_no_trace_is_left_without_a_subject():
    assert {path.stem for path in TRACES.glob("*.npz")} == set(SUBJECTS)
