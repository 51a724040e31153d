"""How a finding describes what the module at fault does."""

import pytest
from torch import nn

from normlab.any_model.questions.culprit import Culprit, CulpritPlace, culprit_in_words


class BertSelfAttention(nn.Module):
    """Attention, judging by its name."""


class PatternMatching(nn.Module):
    """Has `att` in its name, but is not attention."""


class Raindrop(nn.Module):
    """Has `drop` in its name, but is not dropout."""


@pytest.mark.parametrize(
    ("module", "cause", "words"),
    [
        (nn.MultiheadAttention(4, 1), "padding", "MultiheadAttention, attends to padding"),
        (BertSelfAttention(), "padding", "BertSelfAttention, attends to padding"),
        (PatternMatching(), "padding", "PatternMatching, mixes in padding"),
        (nn.Conv2d(1, 1, (3, 5)), "later tokens", "a convolution of size 3x5 that reaches into"),
        (nn.Dropout(), "other rows", "Dropout, draws random numbers"),
        (Raindrop(), "other rows", "Raindrop, mixes in other rows"),
        (nn.BatchNorm1d(4), "other rows", "BatchNorm1d, pools over the batch, other rows included"),
        (nn.LSTM(4, 4), "other rows", "mixes in other rows, because it is not batch_first"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else None,
)
def test_the_description_follows_the_type_or_a_word_of_the_class_name(module, cause, words):
    assert words in culprit_in_words(Culprit([CulpritPlace("layer", module)], True), cause)


def test_the_answer_reports_further_modules_copies_and_an_unexplained_part():
    places = [
        CulpritPlace("0.mix", PatternMatching(), copies=2),
        CulpritPlace("head", nn.Linear(4, 4)),
    ]
    assert culprit_in_words(Culprit(places), "padding") == (
        "0.mix: PatternMatching, mixes in padding (and 2 like it); also head; "
        "this explains only part of the change"
    )
    assert culprit_in_words(Culprit(), "padding") == "no single module explains it"
