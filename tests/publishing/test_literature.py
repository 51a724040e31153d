"""The page of published numbers says whether our interval contains each, or the signs agree."""

import pytest

from normlab.publishing.literature import literature_page
from normlab.records.packed import RECORDS, Key
from normlab.records.record import Score
from normlab.reports.runs import Run
from tests.records.examples import changed, record

LN, DERF, RMS = "ln", "derf", "rms"
NANO, SIGN = "published_nanogpt", "norm_optimizer"


def page(root, study, values):
    """Return the page for a study's runs, given values by row and point, one per seed."""
    folder = root / study / "small"
    folder.mkdir(parents=True)
    (folder / RECORDS).touch()
    runs = [
        Run(
            Key(row, point, seed),
            changed(record(seed=seed), scores={"test/loss": Score(x, False, 9)}),
            (),
        )
        for (row, point), found in values.items()
        for seed, x in enumerate(found, 1)
    ]
    text = literature_page(root, lambda at: runs if at == folder else [])
    return [line for line in text.splitlines() if f"`{study}`" in line]


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        ([1.87, 1.88, 1.90], "the interval contains it"),
        ([1.70, 1.71, 1.72], "the interval does not contain it"),
        ([1.88], "no interval: only one seed"),
    ],
)
def test_the_page_says_whether_our_interval_contains_a_published_number(tmp_path, losses, said):
    (line,) = page(tmp_path, NANO, {(LN, ""): losses})
    assert said in line and "| 1.88 |" in line and "at 3adf61e1" in line


def test_at_a_different_size_only_the_sign_of_the_difference_is_compared(tmp_path):
    rms, up, down = [5.0, 5.1, 5.2], [5.1, 5.21, 5.3], [4.9, 5.01, 5.1]
    point = "optim=adam decay=usual"
    lines = page(tmp_path / "a", SIGN, {(RMS, point): rms, (DERF, point): up})
    assert "the same sign" in lines[0] and "0.103 [" in lines[0]
    assert "not run yet (`normlab study run norm_optimizer scale=small`)" in lines[1]
    lines = page(tmp_path / "b", SIGN, {(RMS, point): rms, (DERF, point): down})
    assert "the opposite sign" in lines[0]
    lines = page(tmp_path / "c", SIGN, {(RMS, point): rms, (DERF, point): [5.2, 5.0, 5.1]})
    assert "the sign is undecided" in lines[0]
