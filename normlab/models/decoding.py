"""Greedy search, beam search and sampling, using a model's `decode_step`.

Search follows fairseq. The score of a finished hypothesis is its log-probability divided by
`length ** length_penalty`, where the length includes the end-of-sentence token. A sentence is done
once `beam` hypotheses have ended, or at the length limit. In each step, only a sentence's best
`beam` candidates may end. Greedy search is beam search with `beam=1`. Finished sentences are
removed from the batch.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from normlab.errors import UserError
from normlab.norms.tokens import Tokens


@dataclass(frozen=True)
class SearchSettings:
    """Settings of beam search.

    Attributes:
        beam: number of hypotheses kept per sentence; 1 is greedy search.
        length_penalty: exponent of the length in the score.
        length_factor, length_offset: a hypothesis has at most factor * source length + offset
            tokens, including the end-of-sentence token.
    """

    beam: int = 5
    length_penalty: float = 1.0
    length_factor: float = 1.0
    length_offset: int = 50

    def max_length(self, source_length: int, limit: int) -> int:
        """Return the maximum length of a hypothesis in tokens, between 1 and `limit`."""
        return max(1, min(int(self.length_factor * source_length + self.length_offset), limit))


@dataclass(frozen=True)
class Hypothesis:
    """A decoded sentence: its token ids without the end-of-sentence token, and its score."""

    tokens: list[int]
    score: float


class SpecialIds(NamedTuple):
    """The token ids of the begin mark, the end mark and padding."""

    bos: int
    eos: int
    pad: int


@torch.no_grad()
def search(
    model,
    ids: Int[Tensor, "G S"],
    source: Tokens,
    settings: SearchSettings,
    special: SpecialIds,
) -> list[Hypothesis]:
    """Return the best hypothesis for each source sentence.

    `model` must be in eval mode and have `encode`, `start_decoding` and `decode_step`. The length
    limit depends on the longest source sentence in the batch.
    """
    beam, banned = settings.beam, (special.pad, special.bos)
    limit = settings.max_length(ids.shape[1], model.decoder.embedding.max_positions)
    state = model.start_decoding(model.encode(ids, source), source, width=beam, max_length=limit)
    beams = _Beams(len(ids), beam, special, ids.device)
    for length in range(1, limit + 1):
        logits = model.decode_step(beams.last, state)
        only = special.eos if length == limit else None
        best = _best(logits, beams.scores, 2 * beam, banned=banned, only=only)
        beams.end(best, length**settings.length_penalty)
        if length == limit or not beams.unfinished():
            break
        beams.extend(best, state)
    # no hypothesis ends if logits are not finite: return an empty one
    nothing = Hypothesis([], float("-inf"))
    return [max(ended, key=lambda h: h.score, default=nothing) for ended in beams.finished]


class _Beams:
    """The hypotheses of a batch: `beam` unfinished ones per sentence, and the finished ones.

    Each unfinished sentence is a group of `beam` rows, one per hypothesis. `alive` maps groups to
    sentences of the batch. `tokens` holds the tokens of each row, `last` its last token, and
    `scores` [groups, beam] its log-probability. `finished` lists each sentence's ended hypotheses.
    """

    def __init__(
        self, sentences: int, beam: int, special: SpecialIds, device: torch.device
    ) -> None:
        self.beam, self.eos = beam, special.eos
        self.alive = list(range(sentences))
        self.finished: list[list[Hypothesis]] = [[] for _ in range(sentences)]
        self.scores = torch.full((sentences, beam), float("-inf"), device=device)
        self.scores[:, 0] = 0  # all hypotheses start out identical, so extend only the first
        self.tokens = torch.full((sentences * beam, 0), special.bos, device=device)
        self.last = torch.full((sentences * beam,), special.bos, device=device)

    def end(self, best: "_Best", length_penalty: float) -> None:
        """Record the finished hypotheses among each sentence's `beam` best extensions."""
        totals, parents, words = best
        ends = words == self.eos
        ends[:, self.beam :] = False
        for group, rank in ends.nonzero().tolist():
            row = group * self.beam + int(parents[group, rank])
            score = float(totals[group, rank]) / length_penalty
            finished = self.finished[self.alive[group]]
            if len(finished) < self.beam and score > float("-inf"):
                finished.append(Hypothesis(self.tokens[row].tolist(), score))

    def unfinished(self) -> list[int]:
        """Return the groups whose sentence has fewer than `beam` ended hypotheses."""
        pairs = enumerate(self.alive)
        return [g for g, sentence in pairs if len(self.finished[sentence]) < self.beam]

    def extend(self, best: "_Best", state: Any) -> None:
        """Drop finished sentences; extend the others by their best candidates that do not end."""
        totals, parents, words = best
        order = (words == self.eos).long().argsort(dim=1, stable=True)[:, : self.beam]
        self.scores, last = totals.gather(1, order), words.gather(1, order)
        groups = torch.arange(len(self.alive), device=words.device)
        rows = groups[:, None] * self.beam + parents.gather(1, order)
        unfinished = self.unfinished()
        dropped = len(unfinished) < len(self.alive)
        if dropped:
            groups = torch.tensor(unfinished, device=words.device)
            rows, last, self.scores = rows[groups], last[groups], self.scores[groups]
            self.alive = [self.alive[g] for g in unfinished]
        rows, self.last = rows.flatten(), last.flatten()
        if dropped or self.beam > 1:
            state.select(rows, groups if dropped else None)
        self.tokens = torch.cat([self.tokens[rows], self.last[:, None]], dim=1)


_Best = tuple[Tensor, Tensor, Tensor]
"""Scores, parents and tokens of the best extensions, as returned by `_best`."""


def _best(
    logits: Float[Tensor, "N V"],
    scores: Float[Tensor, "G W"],
    count: int,
    *,
    banned: Sequence[int],
    only: int | None,
) -> tuple[Float[Tensor, "G C"], Int[Tensor, "G C"], Int[Tensor, "G C"]]:
    """Return the scores, parents and tokens of each sentence's `count` best extensions.

    A parent is the rank of the hypothesis that is extended. Tokens in `banned` are excluded. If
    `only` is not None, it is the only token allowed.
    """
    chances = logits.float().log_softmax(-1)
    if only is None:
        chances[:, list(banned)] = float("-inf")
        values, words = chances.topk(min(count, chances.shape[1]))
    else:
        values, words = chances[:, only, None], torch.full_like(chances[:, :1], only).long()
    each = values.shape[1]
    totals = (scores.flatten()[:, None] + values).view(len(scores), -1)
    totals, best = totals.topk(min(count, totals.shape[1]), dim=-1)
    words = words.view(len(scores), -1).gather(1, best)
    return totals, best // each, words


@dataclass(frozen=True)
class SamplingSettings:
    """Settings for sampling a continuation of a text.

    Attributes:
        max_tokens: the maximum number of tokens to generate.
        temperature: divides the logits before the softmax; 0 always picks the most likely token.
        top_k: number of most likely tokens to sample from, or None for all tokens.
    """

    max_tokens: int
    temperature: float
    top_k: int | None

    def __post_init__(self):
        if self.max_tokens < 1:
            raise UserError(f"max_tokens={self.max_tokens} must be above 0")
        if not 0 <= self.temperature < math.inf:
            raise UserError(f"temperature={self.temperature} must be a number, 0 or more")
        if self.top_k is not None and self.top_k < 1:
            raise UserError(f"top_k={self.top_k} must be above 0")


@torch.no_grad()
def continuation(
    model,
    prompt: Sequence[int],
    settings: SamplingSettings,
    *,
    special: Sequence[int],
    eos_id: int,
    max_positions: int,
    seed: int,
) -> Iterator[int]:
    """Yield the tokens that continue `prompt`, one at a time.

    Stops when `eos_id` is drawn (without yielding it), after `settings.max_tokens` tokens, or once
    `max_positions` are used up. Token ids in `special` are never sampled. `model` must be in eval
    mode and have `start_decoding` and `decode_step`.
    """
    device = next(model.parameters()).device
    random = torch.Generator().manual_seed(seed)
    state = model.start_decoding(1, max_length=max_positions)
    *fed, last = prompt
    for token in fed:
        model.decode_step(torch.tensor([token], device=device), state)
    for _ in range(min(settings.max_tokens, max_positions - len(fed))):
        logits = model.decode_step(torch.tensor([last], device=device), state)[0].float().cpu()
        logits[list(special)] = float("-inf")
        last = _draw(logits, settings, random)
        if last == eos_id:
            return
        yield last


def _draw(logits: Float[Tensor, "V"], settings: SamplingSettings, random: torch.Generator) -> int:
    if settings.temperature == 0:
        return int(logits.argmax())
    values, tokens = logits.topk(min(settings.top_k or len(logits), len(logits)))
    chances = (values / settings.temperature).softmax(-1)
    return int(tokens[torch.multinomial(chances, 1, generator=random)])
