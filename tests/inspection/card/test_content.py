"""The answers of a card."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from normlab.commands.norm import card as make_card
from normlab.inspection.card import content
from normlab.inspection.card.content import answers
from normlab.inspection.card.examined_norm import examined_norm
from normlab.inspection.card.scales import SCALES
from normlab.inspection.questions import questions
from normlab.reports.card_file import read_card


def test_every_question_has_a_text_and_a_unique_name():
    asked = questions("card", "model")
    assert all(each.text.endswith("?") for each in asked)
    assert len({each.name for each in asked}) == len(asked) == 21


QUESTIONS = ("pools", "depth", "padding", "translation", "language_model", "images")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Return the folder of a norm's card, with answers from short runs and about a model."""
    cards = tmp_path_factory.mktemp("cards")
    arguments = ["norm=rms", "scale=smoke", "--folder", str(cards)]
    sizes = {"depth": 1, "image_steps": 2, "images": ("model.width=4", "batch_size=32")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SCALES, "smoke", replace(SCALES["smoke"], **sizes))
        assert make_card([*arguments, "--only", ",".join(QUESTIONS)]) == 0
    return cards / "smoke" / "rms"


@pytest.fixture(scope="module")
def findings(folder):
    return read_card(folder / "card.json").content.findings


def test_a_card_has_the_scores_and_baselines_of_its_short_runs(findings):
    images = findings["images"]
    assert images["board"].keys() == {"digits loss", "digits acc"}
    assert images["values"]["scores"]["test/accuracy"].keys() == {"1"}
    assert images["values"]["floors"]["test/loss"] == pytest.approx(math.log(10), abs=0.01)


def test_a_card_says_what_the_norm_pools_over_and_how_deep_models_change(findings):
    assert findings["pools"]["board"] == {"pools": "feature"}
    assert len(findings["depth"]["values"]["moved"]) == 2


def test_a_short_run_reports_its_scores_and_the_untrained_baseline(findings):
    translation = findings["translation"]
    assert translation["board"].keys() == {"toy nll", "toy BLEU"}
    assert "(untrained baseline " in translation["answer"]
    assert translation["answer"].endswith("after 6 updates; seeds: 1")


def test_a_model_question_is_asked_of_the_translation_model(findings):
    padding = findings["padding"]
    assert padding["applies"] and padding["values"]["moved"]["eval"].keys() == {
        "encoder",
        "decoder",
    }


def test_the_page_of_a_card_shows_all_its_questions(folder, findings):
    page = (folder / "card.html").read_text("utf-8")
    assert all(f'id="{name}"' in page for name in findings)
    assert "No baseline of this scale was found" in page


def test_a_question_about_a_diverged_run_does_not_apply(tmp_path, monkeypatch):
    monkeypatch.setattr(content, "_trained_model", lambda _: None)
    asked = questions("model", names=["leak"])
    ((_, entry),) = answers(examined_norm(["norm=bn"], tmp_path), asked)
    assert entry["answer"].startswith("does not apply: the translation run diverged")
    assert entry["board"] == {}
