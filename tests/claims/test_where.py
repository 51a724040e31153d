"""A selection of runs as text."""

from normlab.claims.where import where_text, words_of


def test_settings_are_written_as_on_a_command_line():
    where = {"norm": "bn", "optim.lr": 0.001, "model.tied": True, "budget.tokens": None}
    words = ["norm=bn", "optim.lr=0.001", "model.tied=true", "budget.tokens=null"]
    assert words_of(where) == words and where_text(where) == " ".join(words)
