"""Cards: their arguments, their files, and what their page and the board show."""

import json
import math
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from normlab.commands.norm import card as make_card
from normlab.errors import UserError
from normlab.inspection.card import content, files, largest_rate, short_runs
from normlab.inspection.card.content import answers
from normlab.inspection.card.examined_norm import examined_norm
from normlab.inspection.card.scales import SCALES
from normlab.inspection.questions import questions
from normlab.records import manifest
from normlab.records.packed import Key, write_pack
from normlab.records.record import Score
from normlab.reports.pages.cards import Card, baselines_for, board, card_page, read_card, scores
from normlab.training import runtime
from tests.records.examples import record


def test_every_question_has_a_text_and_a_name_of_its_own():
    asked = questions("card", "model")
    assert all(each.text.endswith("?") for each in asked)
    assert len({each.name for each in asked}) == len(asked) == 21


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["scale=smoke"], "no norm given: add norm=OPTION"),
        (["norm=bn", "task=lm"], "'task=lm': cards fix their runs' settings"),
        (["norm=bn", "scale=paper"], "scale=paper: choose smoke or small"),
        (["norm=bn", "--only", "foo"], "no question 'foo'"),
        (["norm=bn", "--publish", "nowhere"], "nowhere: no such folder"),
        (["norm=bn", "--publish", ".", "--only", "cost"], "omit --only"),
    ],
)
def test_wrong_input_is_named_before_anything_is_made(arguments, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        make_card([*arguments, "--folder", str(tmp_path)])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("norm=bn",), "bn"),
        (("norm=bn", "placement=post", "norm.ghost=4"), "bn-post-ghost=4"),
        (("norm=bn", "norm@decoder_norm=ln"), "bn+ln"),
    ],
)
def test_a_card_is_named_by_what_differs(arguments, name, tmp_path):
    subject = examined_norm([*arguments, "scale=smoke"], tmp_path)
    assert subject.name == name
    assert subject.folder == tmp_path / "smoke" / name.replace("=", "_")
    assert subject.config("translation", reference=True).choices.norm == "ln"


def test_the_rate_is_doubled_until_it_fails_or_halved_until_it_trains(tmp_path, monkeypatch):
    subject = examined_norm(["norm=bn"], tmp_path)

    def largest(limit):
        def trial(_, value):
            return largest_rate.RateTrial(value <= limit, 1.0, "")

        monkeypatch.setattr(largest_rate, "rate_trial", trial)
        return largest_rate.rate(subject)

    assert largest(0.005).values["largest"] == 0.004
    assert "0.008 does not" in largest(0.005).answer
    assert largest(0.0003).values["largest"] == 0.00025
    assert [row[0] for row in largest(0.0003).table.rows] == [0.00025, 0.0005, 0.001]
    assert largest(0.0).board == {"largest lr": "none"}
    assert largest(9.0).board == {"largest lr": "0.256+"}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Return the folder of a norm's card with three answers, one from a short run."""
    folder = tmp_path_factory.mktemp("cards")
    arguments = ["norm=rms", "scale=smoke", "--folder", str(folder)]
    sizes = {"depth": 1, "picture_steps": 2, "pictures": ("model.width=4", "batch_size=32")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SCALES, "smoke", replace(SCALES["smoke"], **sizes))
        assert make_card([*arguments, "--only", "pools,pictures,depth"]) == 0
    return folder / "smoke" / "rms"


def test_a_card_is_carried_out_and_written(made):
    found = read_card(made / "card.json").content
    assert list(found["examinations"]) == ["depth", "pictures", "pools"]
    pictures = found["examinations"]["pictures"]
    assert pictures["cells"].keys() == {"digits loss", "digits acc"}
    assert pictures["figures"]["scores"]["test/accuracy"].keys() == {"1"}
    assert pictures["figures"]["floors"]["test/loss"] == pytest.approx(math.log(10), abs=0.01)
    assert found["examinations"]["pools"]["cells"] == {"pools": "feature"}
    assert len(found["examinations"]["depth"]["figures"]["moved"]) == 2
    page = (made / "card.html").read_text("utf-8")
    assert all(f'id="{name}"' in page for name in found["examinations"])
    assert "No baseline of this scale was found" in page


@pytest.mark.parametrize(
    ("chosen", "reason"),
    [
        (["norm=ln", "placement=post"], "on images: placement: a residual network has its norms"),
        (["norm=gn", "norm.groups=32"], "groups=32 does not divide the width 8"),
        (["norm=scale"], "raises TypeError: no padding"),
    ],
)
def test_a_norm_that_cannot_stand_on_pictures_says_why(chosen, reason, tmp_path, monkeypatch):
    def forward(*_):
        raise TypeError("no padding\nthere")

    monkeypatch.setattr("normlab.norms.rms.ScaleNorm.forward", forward)
    subject = examined_norm([*chosen, "scale=smoke"], tmp_path)
    found = short_runs.pictures(subject)
    assert found.why_not.startswith("on images") and found.why_not.count(reason) == 1
    assert "\n" not in found.answer and found.board == {} and not list(tmp_path.iterdir())


def test_a_trained_model_that_diverged_does_not_apply(tmp_path, monkeypatch):
    monkeypatch.setattr(content, "_trained_model", lambda _: None)
    asked = questions("model", names=["leak"])
    ((_, found),) = answers(examined_norm(["norm=bn"], tmp_path), asked)
    assert found["answer"].startswith("does not apply: the translation run diverged")
    assert found["cells"] == {}


def picture(**found):
    return card_of("x", [0.1, 0.2])["examinations"]["translation"] | found


def card_of(name, losses, **cells):
    by_seed = {str(seed): loss for seed, loss in enumerate(losses, 1)}
    worse = {seed: -loss for seed, loss in by_seed.items()}  # BLEU, which is higher for the better
    scores = {"test/bleu": worse, "test/nll": by_seed}
    figures = {"steps": 6, "scores": scores, "floors": {}, "curves": {"1": [[3, 2.0], [6, 1.5]]}}
    figures["higher_is_better"] = {"test/nll": False, "test/bleu": True}
    figures["diverged"] = {} if losses else {"1": 4}
    figures["runs"] = {seed: run.run_id for seed, run in runs_by_seed(name, losses).items()}
    found = {"question": "?", "answer": "so", "figures": figures, "columns": [], "rows": []}
    found |= {"cells": cells, "applies": True}
    return {
        "format": "normlab.card/1",
        "name": name,
        "description": f"{name} <of> tests.",
        "overrides": [f"norm={name}"],
        "scale": "small",
        "seeds": [1, 2],
        "norm": {},
        "environment": {"commit": "abc"},
        "examinations": {"translation": found},
    }


def runs_by_seed(norm, losses, **changes):
    """Return the records of short runs by seed."""
    return {
        str(seed): replace_scores(record(norm=norm, seed=seed, bleu=-loss, **changes), loss)
        for seed, loss in enumerate(losses, 1)
    }


def replace_scores(run, loss):
    return msgspec.structs.replace(run, scores={**run.scores, "test/nll": Score(loss, False, 9)})


def written(folder, content, losses, **changes):
    """Write a card and the records of its short runs; return the card."""
    home = folder / content["name"]
    runs = runs_by_seed(content["name"], losses, **changes).values()
    write_pack(home, {Key("toy", "", run.seed): run for run in runs})
    (home / "card.json").write_text(json.dumps(content))
    return read_card(home / "card.json")


def test_the_board_sorts_norms_by_their_losses_and_those_that_see_later_tokens_last():
    contents = (
        card_of("ln", [2.0, 3.0], nll=2.5, lr="0.1+"),
        card_of("mine", [1.5, 2.6], nll=2.05, lr=None),
        card_of("none", [], nll="diverged 1/2"),
        card_of("peeks", [0.1, 0.1], nll=0.1, stepwise=1.7),
    )
    text = board(Card(content, {}) for content in contents)
    assert [line for line in text.splitlines() if line.startswith("| `")] == [
        "| `mine` | 2.05 | - | - |",
        "| `ln` | 2.5 | 0.1+ | - |",
        "| `none` | diverged 1/2 | - | - |",
        "| `peeks` \\* | 0.1 | - | 1.7 |",
    ]


LN, MINE = [2.0, 3.0], [1.5, 2.6]


def test_baselines_are_found_in_the_first_folder_that_has_them(tmp_path):
    mine = written(tmp_path, card_of("mine", MINE), MINE)
    written(tmp_path, card_of("none", []), [])
    for folder, losses in ((tmp_path, LN), (tmp_path / "own", MINE)):
        written(folder, card_of("ln", losses), losses)
    baselines = baselines_for(mine, [tmp_path / "own", tmp_path])
    assert list(baselines) == ["ln", "none"]
    assert baselines["ln"].short_runs("translation")["scores"]["test/nll"] == {"1": 1.5, "2": 2.6}
    (tmp_path / "ln" / "card.json").write_text("{}")
    with pytest.raises(ValueError, match=r"card\.json: damaged or not a card"):
        baselines_for(mine, [tmp_path])


@pytest.mark.parametrize(
    ("changes", "differences"),
    [
        ({}, [("ln", 2.5, -0.45, "[-1.09, +0.185]")]),
        ({"numerics": 2}, []),
        ({"environment": {"precision": "bf16"}}, []),
        ({"budget": {"steps": 7}}, []),
    ],
)
def test_scores_are_compared_over_runs_that_pair(changes, differences, tmp_path):
    mine = written(tmp_path, card_of("mine", MINE), MINE)
    ln = card_of("ln", LN)
    runs = runs_by_seed("ln", LN, **changes)
    ln["examinations"]["translation"]["figures"]["runs"] = {k: r.run_id for k, r in runs.items()}
    other = written(tmp_path, ln, LN, **changes)
    by_name = {score["name"]: score for score in scores("translation", mine, {"ln": other})}
    rounded = [
        (baseline, mean, round(gap, 3), interval)
        for baseline, mean, gap, interval in by_name["test/nll"]["differences"]
    ]
    assert rounded == differences


def test_the_page_of_a_card_marks_scores_that_say_nothing_and_escapes_text(tmp_path):
    content = card_of("mine", MINE)
    content["examinations"]["translation"]["figures"]["floors"] = {"test/nll": 3.0}
    content["examinations"]["pictures"] = picture(environment={"commit": "new"})
    ln = written(tmp_path, card_of("ln", LN), LN)
    page = card_page(written(tmp_path, content, MINE), {"ln": ln})
    assert page.count("Examined apart from the rest, at commit <code>new</code>") == 1
    assert "untrained baseline 3: not clearly better than" in page and page.count("not cl") == 1
    assert "mine &lt;of&gt; tests." in page and "Compared with: ln." in page


def test_a_published_card_never_changes_unless_it_is_replaced(tmp_path, monkeypatch, capsys):
    results, commit = tmp_path / "results", ["a" * 40]
    results.mkdir()
    finding = card_of("rms", [2.0])["examinations"]["translation"]
    made: list[str] = []  # the questions that were asked
    monkeypatch.setattr(content, "answers", lambda *_: made.append("all") or [("cost", finding)])
    for module in (files, runtime):
        monkeypatch.setattr(module, "checkout_state", lambda: (commit[0], False))
    words = ["norm=rms", "--folder", str(tmp_path / "cards"), "--publish", str(results)]
    assert make_card(words) == 0
    home = results / "cards" / "rms"
    before = {path: path.read_bytes() for path in results.rglob("*") if path.is_file()}
    assert home / "card.json" in before and results / "cards.md" in before
    commit[0] = "b" * 40
    with pytest.raises(
        UserError, match=rf"{home}: .*commit a{{10}}, .*commit b{{10}}: .*--replace"
    ):
        make_card(words)
    assert made == ["all"], "refused before anything is examined"
    assert before == {path: path.read_bytes() for path in results.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert make_card([*words, "--replace"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "replaced:" in line)
    assert line.startswith(f"replaced: {home}: published is the card of commit aaaaaaaaaa, ")
    assert read_card(home / "card.json").content["environment"]["commit"] == commit[0]
    assert not manifest.problems(results)
