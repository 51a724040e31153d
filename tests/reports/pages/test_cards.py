"""The page of a card, and the board of cards."""

import pytest

from normlab.reports.card_file import Card
from normlab.reports.pages.cards import baselines_for, board, card_page, scores
from tests.reports.pages.handmade_cards import card_of, content_of, picture, runs_by_seed, written


def test_the_board_sorts_norms_by_loss_and_puts_norms_that_see_later_tokens_last():
    contents = (
        card_of("ln", [2.0, 3.0], nll=2.5, lr="0.1+"),
        card_of("mine", [1.5, 2.6], nll=2.05, lr=None),
        card_of("none", [], nll="diverged 1/2", stepwise=0.3),
        card_of("unstable", [1.0, float("nan")], nll="nan"),
        card_of("peeks", [0.1, 0.1], nll=0.1, stepwise=1.7, sees_later=True),
    )
    text = board(Card(content_of(values), {}) for values in contents)
    assert [line for line in text.splitlines() if line.startswith("| `")] == [
        "| `mine` | 2.05 | - | - |",
        "| `ln` | 2.5 | 0.1+ | - |",
        "| `none` | diverged 1/2 | - | 0.3 |",
        "| `unstable` | nan | - | - |",
        "| `peeks` \\* | 0.1 | - | 1.7 |",
    ]


def test_a_norm_without_a_score_ranks_last():
    content = card_of("a", [2.0, 3.0])
    content["findings"]["translation"]["values"]["scores"]["test/nll"]["2"] = None
    cards = [Card(content_of(values), {}) for values in (content, card_of("b", [2.0, 3.0]))]
    rows = [line for line in board(cards).splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == ["b", "a"]


LN, MINE = [2.0, 3.0], [1.5, 2.6]


def test_baselines_are_found_in_the_first_folder_that_has_them(tmp_path):
    mine = written(tmp_path, card_of("mine", MINE), MINE)
    written(tmp_path, card_of("none", []), [])
    for folder, losses in ((tmp_path, LN), (tmp_path / "own", MINE)):
        written(folder, card_of("ln", losses), losses)
    baselines = baselines_for(mine, [tmp_path / "own", tmp_path])
    assert list(baselines) == ["ln", "none"]
    runs = baselines["ln"].short_runs("translation")
    assert runs is not None and runs.scores["test/nll"] == {"1": 1.5, "2": 2.6}
    (tmp_path / "ln" / "card.json").write_text("{}")
    with pytest.raises(ValueError, match=r"card\.json is damaged or not a card"):
        baselines_for(mine, [tmp_path])


@pytest.mark.parametrize(
    ("changes", "differences"),
    [
        ({}, [("ln", 2.5, -0.45, (-1.085, 0.185))]),
        ({"numerics": 2}, []),
        ({"environment": {"precision": "bf16"}}, []),
        ({"budget": {"steps": 7}}, []),
    ],
)
def test_scores_are_compared_only_over_paired_runs(changes, differences, tmp_path):
    mine = written(tmp_path, card_of("mine", MINE), MINE)
    ln = card_of("ln", LN)
    runs = runs_by_seed("ln", LN, **changes)
    ln["findings"]["translation"]["values"]["runs"] = {k: r.run_id for k, r in runs.items()}
    other = written(tmp_path, ln, LN, **changes)
    by_name = {score.name: score for score in scores("translation", mine, {"ln": other})}
    rounded = [
        (baseline, mean, round(gap, 3), (round(interval.low, 3), round(interval.high, 3)))
        for baseline, mean, gap, interval in by_name["test/nll"].differences
    ]
    assert rounded == differences
    ln["findings"]["translation"]["values"]["diverged"] = {"2": 7}
    diverged = written(tmp_path, ln, LN, **changes)
    assert not any(s.differences for s in scores("translation", mine, {"ln": diverged}))


def test_the_page_of_a_card_marks_scores_near_the_untrained_baseline_and_escapes_text(tmp_path):
    content = card_of("mine", MINE)
    content["findings"]["translation"]["values"]["floors"] = {"test/nll": 3.0}
    content["findings"]["images"] = picture(environment={"commit": "new"})
    ln = written(tmp_path, card_of("ln", LN), LN)
    page = card_page(written(tmp_path, content, MINE), {"ln": ln})
    assert page.count("Examined apart from the rest, at commit <code>new</code>") == 1
    assert "untrained baseline 3: not clearly better than" in page and page.count("not cl") == 1
    assert "mine &lt;of&gt; tests." in page and "Compared with: ln." in page
