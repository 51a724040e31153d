"""The page of published numbers says whether ours agree with each."""

import pytest

from normlab.publishing.literature import literature_page
from normlab.records.packed import RECORDS, Key
from normlab.records.record import Score
from normlab.reports.runs import Run
from tests.records.examples import changed, record

LN, DERF, RMS = "ln", "derf", "rms"
NANO, SIGN = "published_nanogpt", "norm_optimizer"


def page(root, study, values, score="test/loss", scale="small", **floors):
    """Return a study's lines of the page, given a score by row and point, one per seed.

    None stands for a seed that diverged.
    """
    folder = root / study / scale
    folder.mkdir(parents=True)
    (folder / RECORDS).touch()
    runs = [
        Run(
            Key(row, point, seed),
            record(seed=seed, status="diverged")
            if x is None
            else changed(record(seed=seed), scores={score: Score(x, False, 9)}, floors=floors),
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
        ([1.87, 1.88, 1.90], "yes"),
        ([1.70, 1.71, 1.72], "no"),
        ([1.88], "undecided: only one seed (`normlab study run published_nanogpt scale=small`)"),
    ],
)
def test_the_page_says_whether_our_interval_contains_a_published_number(tmp_path, losses, said):
    (line,) = page(tmp_path, NANO, {(LN, ""): losses})
    assert f"| {said} |" in line and "| 1.88 (README of karpathy/nanoGPT at 3adf61e1) |" in line


def test_at_a_different_size_only_the_sign_of_the_difference_is_compared(tmp_path):
    rms, up, down = [5.0, 5.1, 5.2], [5.1, 5.21, 5.3], [4.9, 5.01, 5.1]
    point = "optim=adam decay=usual"
    lines = page(tmp_path / "a", SIGN, {(RMS, point): rms, (DERF, point): up})
    assert "| the same, 0.33 times theirs |" in lines[0] and "0.103 [" in lines[0]
    assert "not run yet (`normlab study run norm_optimizer scale=small`)" in lines[1]
    lines = page(tmp_path / "b", SIGN, {(RMS, point): rms, (DERF, point): down})
    assert "| the opposite |" in lines[0]
    lines = page(tmp_path / "c", SIGN, {(RMS, point): rms, (DERF, point): [5.2, 5.0, 5.1]})
    assert "| undecided |" in lines[0]


@pytest.mark.parametrize(
    ("unified", "said"),
    [
        ([30.1, 29.8, 30.3], "yes"),
        ([29.1, 29.0, 29.2], "no"),
    ],
)
def test_where_the_authors_found_no_difference_our_interval_should_contain_0(
    tmp_path, unified, said
):
    values = {(LN, ""): [30.0, 30.1, 29.9], ("un", ""): unified}
    lines = page(tmp_path, "repaired", values, "test/bleu_tok")
    (line,) = [line for line in lines if "Unified norm minus layer norm" in line]
    assert f"| {said} |" in line


def test_a_row_can_be_compared_with_itself_at_another_point(tmp_path):
    values = {
        (LN, "placement=pre"): [30.0, 31.0, 32.0],
        (LN, "placement=post"): [29.0, 30.1, 31.0],
        ("bn", "placement=pre"): [25.0, 26.0, 27.1],
    }
    batch, _, placement = page(tmp_path, "translation_norms", values, "test/bleu_tok")
    assert "-4.97 [" in batch and "| the same, 1.2 times theirs |" in batch
    assert "Pre-norm minus post-norm" in placement and "0.97 [" in placement


def test_runs_near_their_untrained_baseline_decide_nothing(tmp_path):
    losses = {("post", "schedule.warmup=1"): [6.2, 6.3], ("pre", "schedule.warmup=1"): [4.0, 4.1]}
    settings = {"score": "test/loss", "scale": "long"}
    learned = page(tmp_path / "a", "warmup", losses, **settings, loss=9.0)[1]
    assert "25.5 BLEU lost" in learned and "| the same |" in learned
    untrained = page(tmp_path / "b", "warmup", losses, **settings, loss=6.7)[1]
    assert "| undecided: a side of ours is not clearly better than untrained |" in untrained


def test_if_a_run_diverged_the_others_decide_nothing(tmp_path):
    losses = {("post", "schedule.warmup=1"): [6.2, 6.3, None], ("pre", "schedule.warmup=1"): [4, 5]}
    row = page(tmp_path, "warmup", losses, scale="long", loss=9.0)[1]
    assert "| undecided: one of our runs diverged |" in row and r"| -\* (`warmup`" in row


def test_an_asterisk_says_that_our_runs_came_first(tmp_path):
    ours_first = page(tmp_path / "a", "repaired", {})
    theirs_first = page(tmp_path / "b", SIGN, {})
    assert all("\\*" in line for line in ours_first)
    assert not any("\\*" in line for line in theirs_first)
