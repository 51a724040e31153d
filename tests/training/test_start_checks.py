"""Batches that a norm cannot be trained on are refused at the start with a key to change."""

from pathlib import Path

import pytest

import normlab
from tests.tiny_runs import QUICK, tiny, write_corpus

BY_POSITION = "norm=bn_position"
REFUSED = {
    "fewer positions than a hypothesis may have": (
        (BY_POSITION, "norm.num_positions=9"),
        r"norm\.num_positions=9 is less than the (\d+) positions .* set norm\.num_positions=\1",
    ),
    "at one site": (
        ("norm@decoder_norm=bn_sample", "decoder_norm.num_positions=9"),
        r"decoder_norm\.num_positions=9 is less",
    ),
    "by a rule for some sites": (
        ("sites={decoder.*:{norm:bn_sample,num_positions:9}}",),
        r"sites\.decoder\.\*\.num_positions=9 is less",
    ),
    "a model with too few positions": (
        ("model.max_positions=5",),
        r"model\.max_positions=5; raise it",
    ),
    "statistics to freeze, but none are running": (
        ("norm=ln", "freeze_statistics=0.5"),
        r"freeze_statistics=0\.5 has no effect, .*; omit it",
    ),
    "one sequence per batch": (
        (BY_POSITION, "batch_size=1"),
        r"batch_size=1 .* is too small; .*every output would be the bias",
    ),
    "one sequence per ghost batch": (
        (BY_POSITION, "norm.ghost=1"),
        r"norm\.ghost=1 is too small; .*every output would be the bias",
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_batches_that_a_norm_cannot_be_trained_on_are_refused(
    why: str, corpus: Path, tmp_path: Path
):
    values, message = REFUSED[why]
    config = normlab.compose(tiny(corpus, tmp_path, *values))
    with pytest.raises(ValueError, match=message) as caught:
        normlab.train(config)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.rglob("config.yaml"))


def test_the_error_for_a_corpus_of_one_sequence_asks_for_more_text(tmp_path: Path):
    text = write_corpus(tmp_path / "text", train=1)
    config = normlab.compose(tiny(text, tmp_path, BY_POSITION, "task.vocab_size=80"))
    with pytest.raises(ValueError, match=r"the training data have one sequence, but .*more text"):
        normlab.train(config)


def test_batches_that_a_norm_can_be_trained_on_are_accepted(corpus: Path, tmp_path: Path):
    words = ("norm=bn_position", "norm.num_positions=64", "budget.steps=1")
    assert normlab.train(normlab.compose(tiny(corpus, tmp_path, *QUICK, *words))).outcome.step == 1
