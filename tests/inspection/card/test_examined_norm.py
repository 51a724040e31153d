"""The arguments and the name of a card."""

import pytest

from normlab.commands.norm import card as make_card
from normlab.inspection.card.examined_norm import examined_norm


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["scale=smoke"], "no norm is set; add norm=OPTION"),
        (["norm=bn", "task=lm"], "'task=lm' is not allowed, because all cards use"),
        (["norm=bn", "scale=paper"], "scale=paper is not for cards; choose smoke or small"),
        (["norm=bn", "--only", "foo"], "'foo' is not a question"),
        (["norm=bn", "--publish", "nowhere"], "--publish nowhere is not a folder"),
        (["norm=bn", "--publish", ".", "--only", "cost"], "omit --only"),
        (["norm=bn", "scale=smoke", "--publish", "."], "needs scale=small, not scale=smoke"),
    ],
)
def test_invalid_arguments_are_refused_before_a_card_is_made(arguments, message, tmp_path):
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
def test_a_card_is_named_after_its_norm_and_the_changed_settings(arguments, name, tmp_path):
    subject = examined_norm([*arguments, "scale=smoke"], tmp_path)
    assert subject.name == name
    assert subject.folder == tmp_path / "smoke" / name.replace("=", "_")
    assert subject.config("translation", reference=True).choices.norm == "ln"
