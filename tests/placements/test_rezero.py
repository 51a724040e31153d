"""ReZero: the identity at the start, and its gains."""

from tests.models.small import assert_close, lm
from tests.placements.places import IDS, TOKENS, outputs


def test_rezero_starts_as_the_identity_with_one_gain_per_layer():
    model = lm("none", "rezero", fresh=True)
    assert_close(outputs(model), model.decoder.embedding(IDS, TOKENS)[TOKENS.valid])
    assert [name for name, _ in model.named_parameters() if name.endswith("gain")] == [
        f"decoder.layers.{layer}.self_residual.gain" for layer in range(2)
    ]
    apart = lm("none", "rezero", fresh=True, values={"shared": False})
    assert sum(name.endswith("gain") for name, _ in apart.named_parameters()) == 4
