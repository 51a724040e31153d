"""Step-by-step decoding equals teacher forcing, and beam search agrees with exhaustive search."""

import itertools
import math
from types import SimpleNamespace

import pytest
import torch

from normlab.models.base import incremental
from normlab.models.cache import CachedDecoding, PrefixDecoding
from normlab.models.decoding import Hypothesis, SearchSettings, SpecialIds, search
from normlab.norms.tokens import Tokens
from tests.models.small import (
    BOS,
    EOS,
    GRID,
    PAD,
    UNK,
    assert_close,
    lm,
    logits,
    sentences,
    seq2seq,
)


def teacher_forced(model, source_ids, target_ids):
    """Return the logits after each prefix, [B, P, V], each computed from that prefix alone."""
    return torch.stack(
        [
            logits(model, source_ids, target_ids[:, : end + 1])[:, -1]
            for end in range(target_ids.shape[1])
        ],
        dim=1,
    )


@torch.no_grad()
def stepped(model, source_ids, target_ids):
    """Return the logits after each step of decoding, [B, P, V], and the state."""
    source = Tokens(source_ids != PAD)
    memory = model.encode(source_ids, source)
    state = model.start_decoding(memory, source, width=1, max_length=target_ids.shape[1])
    steps = [model.decode_step(target_ids[:, t], state) for t in range(target_ids.shape[1])]
    return torch.stack(steps, dim=1), state


QK_NORMS = [("ln", "pre", kind) for kind in ("l2", "rms_heads", "qkv")]


@pytest.mark.parametrize(
    ("norm", "place", "qk_norm"), [*((*cell, "none") for cell in GRID), *QK_NORMS]
)
def test_decoding_step_by_step_equals_teacher_forcing(norm, place, qk_norm):
    model = seq2seq(norm, place, qk_norm=qk_norm)
    source, _ = sentences([6, 3, 5], seed=1)
    target, _ = sentences([7, 7, 7], seed=2, first=BOS)
    found, state = stepped(model, source, target)
    assert isinstance(state, CachedDecoding if incremental(model.decoder) else PrefixDecoding)
    assert_close(found, teacher_forced(model, source, target))
    if incremental(model.decoder):
        assert_close(found, logits(model, source, target))


@pytest.mark.parametrize(
    ("norm", "place", "values"),
    [
        ("bn_position", "pre", {}),
        ("ln", "resi_dual", {}),
        ("ln", "hybrid", {}),
        ("seqn", "pre", {}),
        ("bn", "pre", {"eval_stats": "batch"}),
    ],
)
@torch.no_grad()
def test_a_language_model_decodes_with_a_cache_only_if_its_norms_allow_it(norm, place, values):
    model = lm(norm, place, **values)
    ids, _ = sentences([9, 9])

    def whole(ids):
        return model.project(model(ids, Tokens(ids != PAD)))

    state = model.start_decoding(2, max_length=9)
    found = torch.stack([model.decode_step(ids[:, t], state) for t in range(9)], dim=1)
    assert isinstance(state, CachedDecoding) == (norm != "seqn" and not values)
    assert_close(found, torch.stack([whole(ids[:, : t + 1])[:, -1] for t in range(9)], dim=1))
    assert torch.allclose(found, whole(ids)) == isinstance(state, CachedDecoding)


def sharpened(model, factor):
    """Make the next-token distributions far from uniform, so that hypotheses differ."""
    with torch.no_grad():
        model.output.weight.mul_(factor)
    return model


def run(model, ids, settings):
    return search(model, ids, Tokens(ids != PAD), settings, SpecialIds(BOS, EOS, PAD))


def log_probabilities(model, source, target):
    """Return the log-probabilities [B, P, V] of the next token after each prefix alone."""
    scores = teacher_forced(model, source, target).log_softmax(-1)
    scores[..., [PAD, BOS]] = float("-inf")
    return scores


@torch.no_grad()
def exhaustive(model, source, *, vocab, limit):
    """Return all hypotheses of one sentence with their log-probabilities."""
    words = range(UNK, vocab)
    found = []
    for length in range(limit):
        combinations = list(itertools.product(words, repeat=length))
        target = torch.tensor([[BOS, *some] for some in combinations])
        table = log_probabilities(model, source.expand(len(target), -1), target)
        following = torch.tensor([[*some, EOS] for some in combinations])
        totals = table.gather(2, following[..., None])[..., 0].sum(1)
        found += map(Hypothesis, map(list, combinations), totals.tolist())
    return found


@pytest.mark.parametrize(("norm", "place"), [("bn", "post"), ("seqn", "pre")])
def test_a_beam_that_holds_every_hypothesis_finds_the_best_one(norm, place):
    vocab, limit = 7, 4  # 4 words: 1 + 4 + 16 + 64 hypotheses
    source, _ = sentences([4, 2, 3], seed=5, vocab=vocab)
    alone = [row[row != PAD][None] for row in source]
    model = sharpened(seq2seq(norm, place, vocab=vocab), 1.5)
    there = [exhaustive(model, row, vocab=vocab, limit=limit) for row in alone]
    for penalty in (0.0, 0.6, 2.0):
        settings = SearchSettings(90, penalty, 0.0, limit)
        for found, every in zip(run(model, source, settings), there, strict=True):
            scores = [each.score / (len(each.tokens) + 1) ** penalty for each in every]
            best = max(range(len(every)), key=scores.__getitem__)
            assert found.tokens == every[best].tokens, penalty
            assert found.score == pytest.approx(scores[best], abs=1e-5)


class Table:
    """A model whose next-token probabilities are a given function of the tokens so far."""

    def __init__(self, probabilities, *, vocab=6, max_positions=100):
        self.probabilities, self.vocab = probabilities, vocab
        self.decoder = self
        self.embedding = SimpleNamespace(max_positions=max_positions)

    def encode(self, ids, source):
        return ids

    def start_decoding(self, memory, source, *, width, max_length):
        return Prefixes([[] for _ in range(len(memory) * width)])

    def decode_step(self, ids, state):
        table = torch.full((len(ids), self.vocab), 1e-30)
        for row, word in enumerate(ids.tolist()):
            state.prefixes[row] = [*state.prefixes[row], word]
            for token, probability in self.probabilities(state.prefixes[row][1:]).items():
                table[row, token] = probability
        return table.log()


class Prefixes:
    def __init__(self, prefixes):
        self.prefixes = prefixes

    def select(self, rows, groups):
        self.prefixes = [self.prefixes[row] for row in rows.tolist()]


A, B = 4, 5
ONE = torch.tensor([[A, EOS]])


def test_beam_search_finds_a_better_hypothesis_than_greedy_search():
    # greedy takes a (0.6), then the end has 0.3 at best; after b (0.4) the end is certain
    def probabilities(past):
        if not past:
            return {A: 0.6, B: 0.4}
        return {EOS: 1.0} if past == [B] else {EOS: 0.3, A: 0.25, B: 0.25, UNK: 0.2}

    settings = {"length_penalty": 0.0, "length_factor": 0.0, "length_offset": 2}
    (greedy,) = run(Table(probabilities), ONE, SearchSettings(beam=1, **settings))
    (beam,) = run(Table(probabilities), ONE, SearchSettings(beam=2, **settings))
    assert greedy.tokens == [A] and greedy.score == pytest.approx(math.log(0.18), abs=1e-5)
    assert beam.tokens == [B] and beam.score == pytest.approx(math.log(0.4), abs=1e-5)


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize(
    ("settings", "positions", "tokens"),
    [
        ({"length_factor": 0.0, "length_offset": 5}, 100, 4),
        ({"length_factor": 2.0, "length_offset": 1}, 100, 4),  # 2 source tokens
        ({"length_factor": 1.0, "length_offset": 50}, 7, 6),
        ({"length_factor": 0.0, "length_offset": 0}, 100, 0),
    ],
)
def test_a_hypothesis_that_does_not_end_is_cut_off_at_the_length_limit(
    beam, settings, positions, tokens
):
    model = Table(lambda past: {A: 0.7, B: 0.3}, max_positions=positions)
    (found,) = run(model, ONE, SearchSettings(beam=beam, **settings))
    assert len(found.tokens) == tokens


SEED = {"ln": 4, "bn": 4, "in": 1}  # models whose hypotheses differ in length


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("norm", list(SEED))
def test_finished_sentences_leave_the_batch_without_changing_the_others(norm, beam):
    model = sharpened(seq2seq(norm, seed=SEED[norm]), 2.0)
    with torch.no_grad():
        model.output.weight[EOS] *= 2
    source, _ = sentences([5, 3, 4, 6, 2, 5], seed=9)
    settings = SearchSettings(beam=beam, length_factor=0.0, length_offset=12)
    together = run(model, source, settings)
    assert len({len(hypothesis.tokens) for hypothesis in together}) > 1, "none leaves early"
    for row, found in enumerate(together):
        (alone,) = run(model, source[row : row + 1, : int((source[row] != PAD).sum())], settings)
        assert alone.tokens == found.tokens
        assert alone.score == pytest.approx(found.score, abs=1e-5)


def test_a_model_whose_probabilities_are_nan_returns_empty_hypotheses():
    model = Table(lambda past: {A: float("nan")})
    (found,) = run(model, ONE, SearchSettings(beam=2, length_factor=0.0, length_offset=3))
    assert found.tokens == []
