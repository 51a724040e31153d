"""The question of whether padding changes the output, for several lengths and on both sides."""

from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from normlab.any_model.batches.example import ModelFailed, message_of
from normlab.any_model.batches.overlap import Padded, PaddingSide, RowInBatch, SharedPositions
from normlab.any_model.questions.examination import (
    LEAK,
    ROUNDED_CONSTANTS,
    Examination,
    OutputChange,
    PassPair,
)
from normlab.any_model.questions.leak import leak_finding
from normlab.errors import UserError
from normlab.findings.finding import Finding
from normlab.findings.question import question

FEW = (1, 7, 8)
"""Small amounts of padding to try."""
BLOCKS = {32: (1,), 64: (0,), 128: (-1, 0, 1)}
"""The lengths to try, as offsets from the next multiple of each number.

Kernels may change around multiples of 128, which are also multiples of 32 and 64. The others are
tried because windows of 32 or 64 positions may end there.
"""
KERNEL = 128
"""The model's dtype is tried too for lengths next to a multiple of this."""
LONG = 1024  # fewer lengths are tried for rows with at least this many positions
IMPLEMENTATIONS = ("eager", "sdpa")
_OTHER_VALUES = "padding by other values"


@question("padding", of="module")
def padding(examination: Examination) -> Finding:
    """Does padding change the output at real tokens?

    Let y be the output for a row alone, and y' the output at the same positions when the row is
    padded. The row is padded by half its length (at least 8) in float64, with the batch's own
    padding values and with others. If that does not change the output, it is padded by 1, 7 and 8,
    and to lengths around multiples of 32, 64 and 128, where the model's dtype is tried too; it is
    also padded on the other side, and with each implementation of attention. The first, last and
    middle row are also compared with and without their padding in the batch. If the model accepts
    only one length, a shorter row is padded to it: y is then the output with the usual values under
    the padding, and y' the output with others.
    """
    example, n = examination.example, examination.example.padding_to_add
    if not example.length:
        return Finding.none("the inputs have no token axis, so nothing is padded")
    if not example.mask_kind:
        return Finding.none("no input marks padding; set mask= to the name of the input that does")
    length = examination.longest_row.length
    pairs = {f"padding by {n:,} to {length + n:,} positions": padding_pair(examination, n)}
    pairs[_OTHER_VALUES] = padding_pair(examination, n, other=True)
    try:
        changes = examination.changes(pairs)
    except ModelFailed:
        return _of_one_length(examination)
    how = f"One row of {length:,} positions, alone and padded by {n:,}"
    in_batch = _own_padding(examination)
    if max(change.in_float64 for change in changes.values()) <= LEAK:
        with suppress(UserError):
            changes |= examination.changes(in_batch)
        changed, not_run = _lengths(examination, (*FEW, *to_blocks(length)))
        pairs |= in_batch | changed
        with suppress(UserError):
            changes |= examination.changes(changed)
        other_side = _other_side(examination)
        pairs |= other_side
        with suppress(UserError):
            changes |= examination.changes(other_side)
        changes |= _implementations(examination)
        how += f", by {', '.join(map(str, FEW))}, and to multiples of {', '.join(map(str, BLOCKS))}"
        if not_run:
            how += f" (the model cannot run padding by {', '.join(f'{n:,}' for n in not_run)})"
    return leak_finding(examination, changes, pairs, "padding", how)


def padding_pair(
    examination: Examination, n: int, *, other: bool = False, side: PaddingSide | None = None
) -> PassPair:
    """Return the comparison of the longest row alone with the same row padded by n positions."""
    side = side or examination.example.side
    overlap = Padded(side, examination.longest_row.length, n)
    variant = examination.example.padded(n, other=other, side=side)
    return PassPair(variant, examination.longest_row, overlap, unusual=other)


def to_blocks(length: int) -> list[int]:
    """Return the amounts of padding that bring a row close to a multiple of 32, 64 or 128."""
    around = BLOCKS if length < LONG else dict.fromkeys(BLOCKS, (1,))
    totals = {
        -(-(length + 2) // n) * n + offset for n, offsets in around.items() for offset in offsets
    }
    return [total - length for total in sorted(totals)]


def _own_padding(examination: Examination) -> dict[str, PassPair]:
    """Return the comparisons of rows with their padding in the batch and the rows without it."""
    example, pairs = examination.example, dict[str, PassPair]()
    for row in examination.rows:
        if pads := example.length - example.lengths[row]:
            padded = examination.alone(row, with_padding=True)
            overlap = Padded(example.side, example.lengths[row], pads)
            name = f"row {examination.row_label(row)} with its padding of {pads:,}"
            pairs[name] = PassPair(padded, examination.alone(row), overlap)
    return pairs


class _Lengths(NamedTuple):
    """The comparisons in which padding changes the output by more than rounding.

    `not_run` are the amounts of padding with which the model raises an exception.
    """

    changed: dict[str, PassPair]
    not_run: list[int]


def _lengths(
    examination: Examination, amounts: Iterable[int], side: PaddingSide | None = None
) -> _Lengths:
    """Compare the longest row alone with the same row padded by each amount."""
    changed, not_run = dict[str, PassPair](), list[int]()
    length = examination.longest_row.length
    on = f" on the {side}" if side else ""
    for n in dict.fromkeys(amounts):
        pair = padding_pair(examination, n, side=side)
        try:
            differs = _differs(examination, pair, length + n)
        except UserError:
            not_run.append(n)
            continue
        if differs:
            changed[f"padding by {n:,} to {length + n:,} positions{on}"] = pair
    return _Lengths(changed, not_run)


def _differs(examination: Examination, pair: PassPair, length: int) -> bool:
    """Return whether padding a row to a length changes its output by more than rounding."""

    def in_float64(possible: bool) -> bool:
        limit = examination.largest_rounding(in_float64=possible)
        shifted = isinstance(pair.overlap, Padded) and pair.overlap.side == "left"
        limit = max(limit, ROUNDED_CONSTANTS) if shifted else limit
        return examination.differs(pair, in_float64=possible, limit=limit)

    if examination.in_widest_dtype(in_float64):
        return True
    by_kernel = min(length % KERNEL, -length % KERNEL) <= 1
    return by_kernel and examination.differs(pair, in_float64=False, limit=examination.rounding)


def _other_side(examination: Examination) -> dict[str, PassPair]:
    """Return the comparisons in which padding on the other side changes the output.

    If padding by one position already changes it, return none: the model then has learned
    positions, or it groups positions, and the group boundaries shift.
    """
    side: PaddingSide = "left" if examination.example.side == "right" else "right"
    if _lengths(examination, [min(FEW)], side).changed:
        return {}
    to_first_block = to_blocks(examination.longest_row.length)[:1]
    return _lengths(examination, [max(FEW), *to_first_block], side).changed


def _implementations(examination: Examination) -> dict[str, OutputChange]:
    """Return how much padding changes the output with attention other than the model's own.

    An implementation of attention is left out if the model does not support it or cannot run a
    padded row with it.
    """
    config = getattr(examination.model, "config", None)
    former = getattr(config, "_attn_implementation", None)
    if not hasattr(examination.model, "set_attn_implementation") or former not in IMPLEMENTATIONS:
        return {}
    changes: dict[str, OutputChange] = {}
    length = examination.longest_row.length
    for name in IMPLEMENTATIONS:
        if name == former:
            continue
        use = partial(_use_implementation, examination.model, name)
        with suppress(UserError), examination.runner.changed(use):
            other = examination.without_cache()
            for n in (examination.example.padding_to_add, to_blocks(length)[-1]):
                words = f"{name} attention, padding by {n:,} to {length + n:,}"
                changes[words] = other.change(padding_pair(other, n))
    return changes


def _use_implementation(model: Any, name: str) -> None:
    """Make a model use an implementation of attention.

    Raises ModelFailed if the model does not support it.
    """
    try:
        model.set_attn_implementation(name)
    except Exception as error:  # transformers raises exceptions of any class
        raise ModelFailed(f"{type(error).__name__}: {message_of(error)}") from error


def _of_one_length(examination: Examination) -> Finding:
    """Return the finding on a model that accepts only one length."""
    row, n = examination.longest_row, examination.example.padding_to_add
    if row.length <= n:
        n = max(1, row.length // 2)
    start = n if examination.example.side == "left" else 0
    example = examination.example
    short = example.select_positions(start, start + row.length - n)
    base, variant = (short.padded(n, other=other) for other in (False, True))
    # only real positions are compared
    overlap = SharedPositions(row.length, shared=row.length - n, side=example.side)
    pairs = {_OTHER_VALUES: PassPair(variant, base, overlap, unusual=True)}
    how = f"One row of {row.length - n:,} positions, padded by {n:,}; longer rows fail"
    try:
        changes = examination.changes(pairs)
    except ModelFailed:  # a row alone must have no padding, so rows are padded only in the batch
        pairs = _in_the_batch(examination)
        how = "Each row alone and in the batch; padded rows alone fail"
        changes = examination.changes(pairs)
    return leak_finding(examination, changes, pairs, "padding", how)


def _in_the_batch(examination: Examination) -> dict[str, PassPair]:
    """Return the comparisons of rows alone, without padding, with the same rows in the batch.

    Raises UserError if no row has padding.
    """
    batch, rows, pairs = examination.example, examination.example.size, {}
    for row in examination.rows:
        length = batch.lengths[row]
        if pads := batch.length - length:
            overlap = RowInBatch(row, rows, Padded(batch.side, length, pads))
            name = f"row {examination.row_label(row)} with its padding of {pads:,} among {rows}"
            pairs[name] = PassPair(batch, examination.alone(row), overlap)
    if not pairs:
        raise UserError("a padded row fails alone, and no row has padding in the batch")
    return pairs
