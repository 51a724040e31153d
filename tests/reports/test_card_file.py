"""The file of a report card."""

import json

import pytest

from normlab.errors import UserError
from normlab.reports.card_file import ShortRunValues, read_card
from tests.reports.pages.handmade_cards import card_of, content_of


def test_a_written_card_is_read_with_the_values_of_its_short_runs(tmp_path):
    values = card_of("bn", [2.0, 3.0])
    content = content_of(values)
    (tmp_path / "card.json").write_text(content.text)
    card = read_card(tmp_path / "card.json")
    assert card.content == content and json.loads(content.text) == values
    runs = card.short_runs("translation")
    assert isinstance(runs, ShortRunValues) and runs.scores["test/nll"] == {"1": 2.0, "2": 3.0}
    assert runs.values() == values["findings"]["translation"]["values"]
    assert card.short_runs("stepwise") is None


@pytest.mark.parametrize("missing", ["scale", "findings", "curves"])
def test_a_card_without_a_value_that_readers_need_is_an_error(tmp_path, missing):
    content = card_of("bn", [2.0])
    del (content if missing in content else content["findings"]["translation"]["values"])[missing]
    (tmp_path / "card.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=f"card.json is damaged or not a card .*{missing}"):
        read_card(tmp_path / "card.json")
