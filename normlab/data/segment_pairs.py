"""Training examples of BERT (Devlin et al. 2019, section 3.1): two segments of whole sentences.

- A document is cut into runs of consecutive sentences: as many as fit into one sequence and, with
  pairs, at least two. A last sentence left alone joins the one before it, which is then used twice.
  A share of the runs (BERT: a tenth) has a random shorter limit. Documents are not packed together.
- With pairs (`nsp`), a run is cut at random between two sentences: segment A, then B. Half of the
  examples keep B. The others take the B of another document's example whose A has as many sentences
  and leaves about as much room, so that lengths do not give the label away.
- A document of one sentence has no B of its own: it takes another document's, as above. If such
  documents are more than half, some are left out of an epoch, so both labels stay equally frequent.
- Sentences are cut only if one alone, or a run of two, is longer than the room: then A keeps at
  least half of the room, and B gets the rest. These examples exchange their Bs among themselves.

BERT itself fills a foreign B up to the limit, so that a short example gives the label away, and
cuts segments in the middle of sentences.
"""

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from normlab.data.batching import stream
from normlab.data.encoded import EncodedDocuments, copy_runs, ends, width_of
from normlab.data.vocabulary import DocumentTokenizer

MARKS = 3  # [CLS] A [SEP] B [SEP]; one fewer without B
TRIES = 64  # candidates on each side for a B from another document
LEAST = 2  # tokens, marks not counted, that a sequence must have room for


class Batch(NamedTuple):
    """A batch of examples as arrays [rows, columns].

    `ids` and `segments` (0 in A and its marks, 1 in B and its mark) are int64. The others are bool:
    `valid` (no padding), `maskable` (no mark or unknown either), `begins` (first token of a word).
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

    `b` is None without pairs. `is_next` (bool [examples]) says whether B follows A.
    """

    a: Segment
    b: Segment | None
    is_next: np.ndarray

    def __len__(self) -> int:
        return len(self.is_next)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each example, counting its marks: int64 [examples]."""
        return self.a.tokens + (MARKS - 1 if self.b is None else self.b.tokens + MARKS)

    def batch(self, data: EncodedDocuments, indices: np.ndarray, *, padding: float = 0.0) -> Batch:
        """Return the examples `indices` as padded arrays: `[CLS] A [SEP]`, with pairs `B [SEP]`.

        `data` is the split that the examples were drawn from; for `padding` see `width_of`.
        """
        shape = (len(indices), width_of(self.lengths[indices], padding))
        ids = np.full(shape, DocumentTokenizer.pad_id, dtype=np.int64)
        begins = np.zeros(shape, dtype=bool)
        rows, at = np.arange(len(indices)), np.ones(len(indices), np.int64)
        ids[:, :1] = DocumentTokenizer.cls_id
        for part in (self.a,) if self.b is None else (self.a, self.b):
            starts, counts = part.start[indices], part.tokens[indices]
            copy_runs(ids, at, data.text.ids, starts, counts)
            copy_runs(begins, at, data.begins, starts, counts)
            ids[rows, at + counts] = DocumentTokenizer.sep_id
            at = at + counts + 1
        columns, valid = np.arange(shape[1]), ids != DocumentTokenizer.pad_id
        segments = (valid & (columns > self.a.tokens[indices, None] + 1)).astype(np.int64)
        return Batch(ids, segments, valid, ids >= DocumentTokenizer.first_ordinary, begins)


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

    `documents` int64 [documents + 1] holds the first sentence of each document, `lengths` int64
    [sentences] the tokens of each sentence (at least 1). `max_length` bounds an example with its
    marks; a share `short_share` of the examples has less room. Raises ValueError if
    `max_length` leaves no room for segments, or if pairs cannot be made.
    """
    longest = max_length - (MARKS if nsp else MARKS - 1)
    if longest < LEAST:
        raise ValueError(f"max_length={max_length} is too small: the marks leave {longest} tokens")
    rng = stream("pairs", seed=seed, epoch=epoch)
    short = rng.random(len(lengths)) < short_share
    rooms = np.where(short, rng.integers(LEAST, longest + 1, len(lengths)), longest)
    offsets = ends(lengths)
    owner, first, end = _runs(documents, offsets, rooms, pair=nsp)
    room = rooms[: len(owner)]
    if not nsp:
        whole = offsets[end] - offsets[first]
        a = Segment(offsets[first], np.minimum(whole, room))
        return Pairs(a, None, is_next=np.zeros(len(owner), dtype=bool))
    if len(documents) < 3 or not (end - first > 1).any():
        raise ValueError(
            f"segment pairs need two documents, one of them with two sentences: of the "
            f"{len(documents) - 1} here none will do; put a blank line between documents only, or "
            "train without pairs (task.nsp=false)"
        )
    is_next, kept = _labels(end - first > 1, rng)
    owner, first, end, is_next, room = (x[kept] for x in (owner, first, end, is_next, room))
    split = first + 1 + rng.integers(0, np.maximum(end - first - 1, 1))
    lone = end - first == 1
    wanted = offsets[end] - offsets[split]
    wanted[lone] = rng.choice(wanted[~lone], int(lone.sum()))
    a_whole = offsets[split] - offsets[first]
    # If A and B do not fit together, A keeps at least half of the room and B gets the rest.
    a_tokens = np.minimum(a_whole, np.maximum(room - wanted, room - room // 2))
    over = offsets[end] - offsets[first] > room
    b_first, b_end = split.copy(), end.copy()
    takers = np.flatnonzero(~is_next)
    keys = (rng.random(len(takers)), (room - a_tokens)[takers], (split - first)[takers])
    order = takers[np.lexsort((*keys, over[takers]))]
    needed = np.where(over, 0, offsets[end] - offsets[split])  # where B is cut, any room will do
    giver = _givers(order, owner, lone, needed, room - a_tokens)
    found = giver >= 0
    b_first[order[found]], b_end[order[found]] = split[giver[found]], end[giver[found]]
    rest = order[~found]
    b_first[rest] = _sentence_elsewhere(documents, owner[rest], rng)
    b_end[rest] = b_first[rest] + 1
    b_tokens = np.minimum(offsets[b_end] - offsets[b_first], room - a_tokens)
    return Pairs(Segment(offsets[first], a_tokens), Segment(offsets[b_first], b_tokens), is_next)


def _runs(
    documents: np.ndarray, offsets: np.ndarray, rooms: np.ndarray, *, pair: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut documents into runs; return the document, the first sentence and the end of each run.

    Run i fits into `rooms[i]` tokens, unless it is as short as possible: one sentence, or two with
    `pair`.
    """
    least = 2 if pair else 1
    places = offsets.tolist()
    limits = rooms.tolist()
    owner, firsts, stops = list[int](), list[int](), list[int]()
    for document, (begin, stop) in enumerate(pairwise(documents.tolist())):
        first = begin
        while first < stop:
            if pair and first == stop - 1 and first > begin:
                first -= 1
            limit = places[first] + limits[len(owner)]
            fits = bisect_right(places, limit, lo=first, hi=stop + 1) - 1
            end = min(max(fits, first + least), stop)
            owner.append(document)
            firsts.append(first)
            stops.append(end)
            first = end
    return np.array(owner, np.int64), np.array(firsts, np.int64), np.array(stops, np.int64)


def _labels(can_follow: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw which runs keep their B (bool [runs]) and which runs are used (indices, ascending)."""
    able, lone = np.flatnonzero(can_follow), np.flatnonzero(~can_follow)
    if len(lone) > len(able):
        lone = rng.permutation(lone)[: len(able)]
    kept = np.sort(np.concatenate([able, lone]))
    is_next = np.zeros(len(can_follow), dtype=bool)
    # If the number of runs is odd, a coin decides which label has one more.
    half = (len(kept) + int(rng.integers(0, 2))) // 2
    is_next[rng.permutation(able)[:half]] = True
    return is_next, kept


def _givers(
    order: np.ndarray, owner: np.ndarray, lone: np.ndarray, needed: np.ndarray, room: np.ndarray
) -> np.ndarray:
    """Return the example whose B each example of `order` takes: the nearest suitable one.

    A suitable B is from another document, and its `needed` tokens fit into the taker's `room`.
    `lone` examples have no B to give. -1 if none of the nearest `TRIES` per side suits.
    """
    givers = order[~lone[order]]
    found = np.full(len(order), -1)
    here = np.cumsum(~lone[order]) - ~lone[order]  # givers before each position
    todo = np.arange(len(order) if len(givers) else 0)
    for way in (*(-step for step in range(1, TRIES + 1)), *range(TRIES)):
        at = here[todo] + way
        taker, candidate = order[todo], givers[at % len(givers)] if len(todo) else todo
        good = (owner[candidate] != owner[taker]) & (needed[candidate] <= room[taker])
        good &= (at >= 0) & (at < len(givers))
        found[todo[good]] = candidate[good]
        todo = todo[~good]
    return found


def _sentence_elsewhere(
    documents: np.ndarray, owner: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Draw, for each `owner`, a sentence of another document."""
    begin, stop = documents[owner], documents[owner + 1]
    sentence = rng.integers(0, documents[-1] - (stop - begin))
    return sentence + np.where(sentence >= begin, stop - begin, 0)
