"""A published card changes only with `--replace`."""

import pytest

from normlab.commands.norm import card as make_card
from normlab.errors import UserError
from normlab.inspection.card import content, files
from normlab.records import manifest
from normlab.reports.card_file import read_card
from normlab.training import runtime
from tests.reports.pages.handmade_cards import card_of

NOW, LATER = "a" * 40, "b" * 40


@pytest.fixture
def publish(tmp_path, monkeypatch):
    """Return a function that publishes a card made at a commit; it notes each examination."""
    (tmp_path / "results").mkdir()
    finding = card_of("rms", [2.0])["findings"]["translation"]
    words = ["norm=rms", "--folder", str(tmp_path / "cards")]

    def publish_at(commit, *more):
        for module in (files, runtime):
            monkeypatch.setattr(module, "checkout_state", lambda: (commit, False))
        monkeypatch.setattr(
            content,
            "answers",
            lambda *_: publish_at.examined.append(commit) or [("cost", finding)],
        )
        return make_card([*words, "--publish", str(tmp_path / "results"), *more])

    publish_at.examined = []
    return publish_at


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_publishing_a_card_again_is_refused_before_anything_is_examined(tmp_path, publish):
    results = tmp_path / "results"
    assert publish(NOW) == 0
    before = contents(results)
    assert {results / "cards" / "rms" / "card.json", results / "cards.md"} <= before.keys()
    refusal = rf"{results / 'cards' / 'rms'}: .*commit a{{10}}, .*commit b{{10}}; .*--replace"
    with pytest.raises(UserError, match=refusal):
        publish(LATER)
    assert publish.examined == [NOW]
    assert contents(results) == before


def test_replace_reports_the_commit_of_the_previous_card(tmp_path, publish, capsys):
    home = tmp_path / "results" / "cards" / "rms"
    publish(NOW)
    capsys.readouterr()
    assert publish(LATER, "--replace") == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "replaced:" in line)
    assert line.startswith(f"replaced: {home}: the published card is from commit aaaaaaaaaa, ")
    assert read_card(home / "card.json").content.environment["commit"] == LATER
    assert not manifest.problems(tmp_path / "results")
