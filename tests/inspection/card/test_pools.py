"""What a card says about the values that a norm pools."""

from normlab.inspection.card.examined_norm import examined_norm
from normlab.inspection.card.pools import pools


def test_a_norm_that_changes_during_training_is_examined_half_way(tmp_path):
    sees = pools(examined_norm(["norm=prepbn", "scale=smoke"], tmp_path)).values["sees"]
    assert "other samples" in sees["in training"]
    assert sees["in evaluation"] == "only its own value"
