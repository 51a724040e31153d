"""Training examples of BERT (Devlin et al. 2019, section 3.1): two segments of whole sentences.

- A document is cut into runs of consecutive sentences, as many as fit into one sequence; with
  pairs, at least two. A sentence left over joins the previous one, which is then used twice. A
  share of the runs (BERT: a tenth) has a random, lower limit. No run spans two documents.
- With pairs (`nsp`), a run is cut at a random sentence boundary into segments A and B. Half of the
  examples keep their B. The others get the B of an example from another document whose A has as
  many sentences and leaves about as much room, so that lengths do not give the label away.
- A document of one sentence gets its B from another document in the same way. If most runs are such
  documents, each epoch leaves some out, so that both labels stay equally frequent.
- Sentences are truncated only if a run of one or two is longer than its limit: A then keeps at
  least half of the room and B gets the rest. Such examples swap their Bs with each other.

BERT itself fills up a B from another document and truncates segments in the middle of sentences.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from normlab.data.dice import generator_of
from normlab.data.encoded import EncodedDocuments, copy_runs, ends, ranges, runs, width_of
from normlab.data.vocabulary import DocumentTokenizer
from normlab.errors import UserError

MARKS = 3  # special tokens in [CLS] A [SEP] B [SEP]; one fewer without B
TRIES = 64  # candidates tried on each side for a B from another document
LEAST = 2  # the fewest ordinary tokens that a sequence must have room for


class SegmentBatch(NamedTuple):
    """A batch of examples as arrays [rows, columns].

    `ids` and `segments` (0 up to the first [SEP], 1 for B and its [SEP]) are int64. The others are
    bool: `valid` (not padding), `maskable` (ordinary token), `begins` (first token of a word).
    """

    ids: np.ndarray
    segments: np.ndarray
    valid: np.ndarray
    maskable: np.ndarray
    begins: np.ndarray


class Segment(NamedTuple):
    """One segment per example: `tokens` tokens of the split from position `start`, int64 [n]."""

    start: np.ndarray
    tokens: np.ndarray


@dataclass(frozen=True)
class Pairs:
    """The examples of one epoch, in the order of their documents.

    `segments` are A and, with pairs, B. `is_next` (bool [examples]) says whether B follows A in the
    text.
    """

    segments: tuple[Segment, ...]
    is_next: np.ndarray

    def __len__(self) -> int:
        return len(self.is_next)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens per example, including special tokens: int64 [examples]."""
        return np.sum([x.tokens for x in self.segments], axis=0) + 1 + len(self.segments)

    def ids(self, data: EncodedDocuments) -> np.ndarray:
        """Return the token ids of all segments, int32 [tokens], without special tokens."""
        return np.concatenate([data.text.ids[ranges(*x)] for x in self.segments])

    def batch(
        self, data: EncodedDocuments, indices: np.ndarray, *, padding: float = 0.0
    ) -> SegmentBatch:
        """Return the examples `indices` as padded arrays: `[CLS] A [SEP]`, then any `B [SEP]`.

        `data` is the split that the examples were drawn from; for `padding` see `width_of`.
        """
        shape = (len(indices), width_of(self.lengths[indices], padding))
        ids = np.full(shape, DocumentTokenizer.pad_id, dtype=np.int64)
        begins = np.zeros(shape, dtype=bool)
        rows, at = np.arange(len(indices)), np.ones(len(indices), np.int64)
        ids[:, :1] = DocumentTokenizer.cls_id
        for segment in self.segments:
            starts, counts = segment.start[indices], segment.tokens[indices]
            copy_runs(ids, at, data.text.ids, starts, counts)
            copy_runs(begins, at, data.begins, starts, counts)
            ids[rows, at + counts] = DocumentTokenizer.sep_id
            at = at + counts + 1
        columns, valid = np.arange(shape[1]), ids != DocumentTokenizer.pad_id
        segments = (valid & (columns > self.segments[0].tokens[indices, None] + 1)).astype(np.int64)
        return SegmentBatch(ids, segments, valid, ids >= DocumentTokenizer.first_ordinary, begins)


def segment_pairs(
    documents: np.ndarray,
    lengths: np.ndarray,
    *,
    max_length: int,
    short_share: float,
    seed: int,
    epoch: int,
    nsp: bool,
) -> Pairs:
    """Return the examples of an epoch; they depend only on the arguments.

    `documents` (int64 [documents + 1]) holds the index of each document's first sentence, `lengths`
    (int64 [sentences]) the tokens per sentence (at least 1). `max_length` limits an example
    including special tokens; a share `short_share` of the examples has a lower limit. Raises
    UserError if `max_length` leaves no room for segments, or if pairs cannot be made.
    """
    longest = max_length - (MARKS if nsp else MARKS - 1)
    if longest < LEAST:
        raise UserError(
            f"max_length={max_length} is too small: special tokens leave room for only {longest}"
        )
    rng = generator_of("pairs", seed=seed, epoch=epoch)
    short = rng.random(len(lengths)) < short_share
    rooms = np.where(short, rng.integers(LEAST, longest + 1, len(lengths)), longest)
    offsets = ends(lengths)
    owner, first, end = runs(documents, offsets, rooms, least=2 if nsp else 1)
    room = rooms[: len(owner)]
    if not nsp:
        a = Segment(offsets[first], np.minimum(offsets[end] - offsets[first], room))
        return Pairs((a,), is_next=np.zeros(len(owner), dtype=bool))
    if len(documents) < 3 or not (end - first > 1).any():
        raise UserError(
            f"segment pairs need two documents, one of them with two sentences; the split has "
            f"{len(documents) - 1} documents: separate them by blank lines, or set task.nsp=false"
        )
    is_next, used = _labels(end - first > 1, rng)
    owner, first, end, is_next, room = (x[used] for x in (owner, first, end, is_next, room))
    split = first + 1 + rng.integers(0, np.maximum(end - first - 1, 1))
    lone = end - first == 1
    b_wanted = offsets[end] - offsets[split]
    b_wanted[lone] = rng.choice(b_wanted[~lone], int(lone.sum()))
    # If A and B do not both fit, A keeps at least half of the room and B gets the rest.
    least = np.maximum(room - b_wanted, room - room // 2)
    a_tokens = np.minimum(offsets[split] - offsets[first], least)
    over = offsets[end] - offsets[first] > room
    b_first, b_end = split.copy(), end.copy()
    takers = np.flatnonzero(~is_next)
    keys = (rng.random(len(takers)), (room - a_tokens)[takers], (split - first)[takers])
    order = takers[np.lexsort((*keys, over[takers]))]
    needed = np.where(over, 0, b_wanted)  # a B to be truncated fits any room
    giver = _givers(order, owner, lone, needed, room - a_tokens)
    paired = giver >= 0
    b_first[order[paired]], b_end[order[paired]] = split[giver[paired]], end[giver[paired]]
    rest = order[~paired]
    # The others get any sentence of another document.
    begin, stop = documents[owner[rest]], documents[owner[rest] + 1]
    sentence = rng.integers(0, documents[-1] - (stop - begin))
    b_first[rest] = sentence + np.where(sentence >= begin, stop - begin, 0)
    b_end[rest] = b_first[rest] + 1
    b_tokens = np.minimum(offsets[b_end] - offsets[b_first], room - a_tokens)
    a, b = Segment(offsets[first], a_tokens), Segment(offsets[b_first], b_tokens)
    return Pairs((a, b), is_next)


def _labels(can_follow: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw the runs that keep their B (bool [runs]) and the runs to use (ascending indices)."""
    able, lone = np.flatnonzero(can_follow), np.flatnonzero(~can_follow)
    if len(lone) > len(able):
        lone = rng.permutation(lone)[: len(able)]
    used = np.sort(np.concatenate([able, lone]))
    is_next = np.zeros(len(can_follow), dtype=bool)
    # If the number of runs is odd, a coin flip decides which label has one more.
    half = (len(used) + int(rng.integers(0, 2))) // 2
    is_next[rng.permutation(able)[:half]] = True
    return is_next, used


def _givers(
    order: np.ndarray, owner: np.ndarray, lone: np.ndarray, needed: np.ndarray, room: np.ndarray
) -> np.ndarray:
    """Return, for each example of `order`, the nearest example whose B it can take, or -1.

    That B is from another document, and its `needed` tokens fit into the taker's `room`. `lone`
    examples have no B to give. Only the nearest `TRIES` examples per side are tried.
    """
    givers = order[~lone[order]]
    nearest = np.full(len(order), -1)
    givers_before = (
        np.cumsum(~lone[order]) - ~lone[order]
    )  # number of givers ahead of each position
    todo = np.arange(len(order) if len(givers) else 0)
    for way in (*(-step for step in range(1, TRIES + 1)), *range(TRIES)):
        at = givers_before[todo] + way
        taker, candidate = order[todo], givers[at % len(givers)] if len(todo) else todo
        good = (owner[candidate] != owner[taker]) & (needed[candidate] <= room[taker])
        good &= (at >= 0) & (at < len(givers))
        nearest[todo[good]] = candidate[good]
        todo = todo[~good]
    return nearest
