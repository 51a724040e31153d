"""The marks of a class are z-scores."""

import numpy as np
from scipy import stats

from normlab.claim_checks import (
    marks,
)
from normlab.inspection.examples.articles import CLASS_MARKS
from tests.claim_checks.by_hand import numbers


def test_marks_are_z_scores_per_subject_or_per_pupil():
    table = np.array(CLASS_MARKS)
    np.testing.assert_allclose(marks.standardized("bn"), stats.zscore(table, axis=0), atol=1e-6)
    np.testing.assert_allclose(marks.standardized("ln"), stats.zscore(table, axis=1), atol=1e-6)
    assert set(numbers("marks.subjects")[1]) == set(numbers("marks.coach")[1]) == {True}
