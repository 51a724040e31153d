"""Training examples of BERT (Devlin et al. 2019, section 3.1): two segments of whole sentences.

- A document is cut into spans of consecutive sentences: as many as fit into one sequence, and at
  least two with pairs. A single leftover sentence forms a span with the sentence before it, which
  is then used twice. A fraction of the spans (in BERT a tenth) has a random, lower limit. No span
  crosses the end of a document.
- With pairs (`nsp`), a span is cut at a random sentence boundary into segments A and B. Half of the
  examples keep their B. The others get the B of an example from another document whose A has as
  many sentences and leaves about as much room, so that lengths do not give the label away. Several
  examples may get the same B.
- A document of one sentence gets its B from another document in the same way. If most spans are
  such documents, each epoch leaves some out, so that both labels stay equally frequent.
- Sentences are truncated only if a span of one or two is longer than its limit: A then keeps at
  least half of the room and B gets the rest. Such examples take their Bs from each other.

BERT itself fills a B from another document to the end and truncates segments in mid-sentence.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from normlab.data.encoded import (
    EncodedDocuments,
    copy_spans,
    offsets_of,
    ranges,
    sentence_spans,
    width_of,
)
from normlab.data.example_random import generator_of
from normlab.data.vocabulary import DocumentTokenizer
from normlab.errors import UserError

MARKS = 3  # special tokens in [CLS] A [SEP] B [SEP]; one fewer without B
TRIES = 64  # candidates tried on each side for a B from another document
LEAST = 2  # minimum number of ordinary tokens for which a sequence must have room


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
    """Segment A or B of each example: `tokens` tokens from position `start` of the split.

    Both are int64 [n].
    """

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
        """The number of tokens of each example, including special tokens, as int64 [examples]."""
        return np.sum([x.tokens for x in self.segments], axis=0) + 1 + len(self.segments)

    def ids(self, data: EncodedDocuments) -> np.ndarray:
        """Return the token ids of all segments, int32 [tokens], without special tokens."""
        return np.concatenate([data.text.ids[ranges(*x)] for x in self.segments])

    def batch(
        self, data: EncodedDocuments, indices: np.ndarray, *, padding: float = 0.0
    ) -> SegmentBatch:
        """Return the examples at `indices`, padded: `[CLS] A [SEP]` and, in pairs, `B [SEP]`.

        `data` is the split that the examples were drawn from. Padding makes up at least a fraction
        `padding` of the positions.
        """
        shape = (len(indices), width_of(self.lengths[indices], padding))
        ids = np.full(shape, DocumentTokenizer.pad_id, dtype=np.int64)
        begins = np.zeros(shape, dtype=bool)
        rows, at = np.arange(len(indices)), np.ones(len(indices), np.int64)
        ids[:, :1] = DocumentTokenizer.cls_id
        for segment in self.segments:
            starts, counts = segment.start[indices], segment.tokens[indices]
            copy_spans(ids, at, data.text.ids, starts, counts)
            copy_spans(begins, at, data.begins, starts, counts)
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
    """Return the examples of an epoch, which depend only on the arguments.

    `documents` (int64 [documents + 1]) holds the index of each document's first sentence, and
    `lengths` (int64 [sentences]) the number of tokens per sentence, at least 1. `max_length` limits
    an example including special tokens; a fraction `short_share` of the examples has a lower limit.
    Raises UserError if `max_length` leaves no room for segments, or if pairs cannot be made.
    """
    longest = max_length - (MARKS if nsp else MARKS - 1)
    if longest < LEAST:
        raise UserError(
            f"max_length={max_length} is too small: special tokens leave room for only {longest}"
        )
    rng = generator_of("pairs", seed=seed, epoch=epoch)
    offsets = offsets_of(lengths)
    spans = _cut_spans(documents, offsets, longest, short_share, least=2 if nsp else 1, rng=rng)
    if not nsp:
        start, tokens = offsets[spans.first], spans.tokens(offsets)
        a = Segment(start, np.minimum(tokens, spans.room))
        return Pairs((a,), is_next=np.zeros(len(start), dtype=bool))
    if len(documents) < 3 or spans.lone.all():
        raise UserError(
            "segment pairs need two documents, one of them with two sentences; the split has "
            f"{len(documents) - 1} documents; separate them by blank lines, or set task.nsp=false"
        )
    is_next, used = _choose_labels(~spans.lone, rng)
    cut = _fit(spans.pick(used), offsets, rng)
    b_first, b_end = _assign_foreign_b(cut, np.flatnonzero(~is_next[used]), documents, rng)
    b_tokens = np.minimum(offsets[b_end] - offsets[b_first], cut.b_room)
    a, b = Segment(offsets[cut.spans.first], cut.a_tokens), Segment(offsets[b_first], b_tokens)
    return Pairs((a, b), is_next[used])


class _Spans(NamedTuple):
    """Spans of whole sentences, from `first` to `end` (exclusive) in a document, int64 [n].

    `room` is the number of tokens that a span may take.
    """

    document: np.ndarray
    first: np.ndarray
    end: np.ndarray
    room: np.ndarray

    @property
    def lone(self) -> np.ndarray:
        """Whether each span is a single sentence, which leaves none for B, as bool [n]."""
        return self.end - self.first == 1

    def tokens(self, offsets: np.ndarray) -> np.ndarray:
        """Return the number of tokens in each span, int64 [n], given all sentences' offsets."""
        return offsets[self.end] - offsets[self.first]

    def pick(self, indices: np.ndarray) -> "_Spans":
        """Return the spans at `indices`."""
        return _Spans(*(values[indices] for values in self))


class _Cut(NamedTuple):
    """Spans cut into A and B, with their sizes in tokens, int64 [n].

    `split` is the first sentence of B, or the span's end if there is no B. `b_wanted` is the size
    of B before truncation. `truncated` (bool) marks spans that are too long to fit untruncated.
    """

    spans: _Spans
    split: np.ndarray
    a_tokens: np.ndarray
    b_wanted: np.ndarray
    truncated: np.ndarray

    @property
    def b_room(self) -> np.ndarray:
        """The number of tokens that A leaves for B, int64 [n]."""
        return self.spans.room - self.a_tokens


def _cut_spans(
    documents: np.ndarray,
    offsets: np.ndarray,
    longest: int,
    short_share: float,
    *,
    least: int,
    rng: np.random.Generator,
) -> _Spans:
    """Cut documents into spans of at most `longest` tokens.

    A fraction `short_share` of the spans has a lower limit. A span has at least `least` sentences
    if its document has that many.
    """
    sentences = len(offsets) - 1
    short = rng.random(sentences) < short_share
    rooms = np.where(short, rng.integers(LEAST, longest + 1, sentences), longest)
    document, first, end = sentence_spans(documents, offsets, rooms, least=least)
    return _Spans(document, first, end, rooms[: len(document)])


def _choose_labels(
    can_follow: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw which spans keep their B (bool [spans]) and which are used (indices, ascending)."""
    able, lone = np.flatnonzero(can_follow), np.flatnonzero(~can_follow)
    if len(lone) > len(able):
        lone = rng.permutation(lone)[: len(able)]
    used = np.sort(np.concatenate([able, lone]))
    is_next = np.zeros(len(can_follow), dtype=bool)
    # If the number of spans is odd, a coin flip decides which label has one more.
    half = (len(used) + int(rng.integers(0, 2))) // 2
    is_next[rng.permutation(able)[:half]] = True
    return is_next, used


def _fit(spans: _Spans, offsets: np.ndarray, rng: np.random.Generator) -> _Cut:
    """Cut each span into A and B at a random sentence, and truncate A if it leaves too little room.

    A lone sentence, which gets a B from another document, leaves room for a B of typical length.
    """
    _, first, end, room = spans
    lone = spans.lone
    split = first + 1 + rng.integers(0, np.maximum(end - first - 1, 1))
    b_wanted = offsets[end] - offsets[split]
    b_wanted[lone] = rng.choice(b_wanted[~lone], int(lone.sum()))
    # If A and B do not both fit, A keeps at least half of the room and B gets the rest.
    a_room = np.maximum(room - b_wanted, room - room // 2)
    a_tokens = np.minimum(offsets[split] - offsets[first], a_room)
    return _Cut(spans, split, a_tokens, b_wanted, spans.tokens(offsets) > room)


def _assign_foreign_b(
    cut: _Cut, takers: np.ndarray, documents: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the first sentence and the end of each B; `takers` get a B from another document.

    Takers are sorted by whether they are truncated, by the number of sentences in A and by the room
    that A leaves, so that neighbours can take each other's Bs. A taker that finds no B gets an
    arbitrary sentence of another document.
    """
    document, first, end, _ = cut.spans
    b_first, b_end = cut.split.copy(), end.copy()
    ties = rng.random(len(takers))
    keys = (ties, cut.b_room[takers], (cut.split - first)[takers], cut.truncated[takers])
    order = takers[np.lexsort(keys)]
    giver = _givers(order, cut)
    paired = giver >= 0
    b_first[order[paired]], b_end[order[paired]] = cut.split[giver[paired]], end[giver[paired]]
    unpaired = order[~paired]
    begin, stop = documents[document[unpaired]], documents[document[unpaired] + 1]
    sentence = rng.integers(0, documents[-1] - (stop - begin))
    b_first[unpaired] = sentence + np.where(sentence >= begin, stop - begin, 0)
    b_end[unpaired] = b_first[unpaired] + 1
    return b_first, b_end


def _givers(order: np.ndarray, cut: _Cut) -> np.ndarray:
    """Return, for each example of `order`, an example whose B it can take, or -1.

    That is the first example with a fitting B among the `TRIES` examples before it, from near to
    far, and then among the `TRIES` examples after it. A B fits if it comes from another document
    and there is room for it after the taker's A; if the taker is truncated anyway, any B from
    another document fits. Lone sentences have no B to give.
    """
    document, room = cut.spans.document, cut.b_room
    needed = np.where(cut.truncated, 0, cut.b_wanted)
    gives = ~cut.spans.lone[order]
    givers = order[gives]
    giver = np.full(len(order), -1)
    givers_before = np.cumsum(gives) - gives  # the number of givers ahead of each position
    unpaired = np.arange(len(order) if len(givers) else 0)
    for offset in (*(-step for step in range(1, TRIES + 1)), *range(TRIES)):
        at = givers_before[unpaired] + offset
        taker = order[unpaired]
        candidate = givers[at % len(givers)] if len(unpaired) else unpaired
        good = (document[candidate] != document[taker]) & (needed[candidate] <= room[taker])
        good &= (at >= 0) & (at < len(givers))
        giver[unpaired[good]] = candidate[good]
        unpaired = unpaired[~good]
    return giver
