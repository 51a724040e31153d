"""The question of whether padding changes the output, at several lengths and on both sides."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from normlab.any_model.batches.example import ModelFailed
from normlab.any_model.batches.outputs import Overlap, Side
from normlab.any_model.questions.examination import LEAK, Examination, Moved, PassPair
from normlab.any_model.questions.leak import leak
from normlab.errors import UserError
from normlab.findings.finding import Finding
from normlab.findings.question import question

FEW = (1, 7, 8)
BLOCKS = {32: (1,), 64: (0,), 128: (-1, 0, 1)}
"""Lengths around multiples of these are tried, as kernels may treat them differently.

A multiple of 128 is one of 32 and 64, too; windows of 32 and 64 may end at the smaller ones.
"""
LONG = 1024  # positions, above which fewer lengths are tried
IMPLEMENTATIONS = ("eager", "sdpa")
UNUSUAL = "padding by other values"
"""Name of the comparison with unusual values under the padding."""


@question("padding", of="module")
def padding(about: Examination) -> Finding:
    """Does padding change the output at real tokens?

    Let y be the output for a row alone, and y' the output at the same positions when the row is
    padded on the mask's side, with the batch's own padding values and with others: by half its
    length (at least 8) in float64; by 1, 7 and 8, and to lengths around multiples of 32, 64 and 128
    in the model's dtype, and in float64 if that changes it; also on the other side, and with each
    attention implementation. The first, last and middle row are also compared with and without
    their padding in the batch. If the model accepts only one length, a shorter row is padded to it:
    y then has the usual values under the padding, and y' has others.
    """
    example, n = about.example, about.example.pads
    if not example.length:
        return Finding.none("the inputs have no token axis, so nothing is padded")
    if not example.kind:
        return Finding.none("no input marks padding; set mask= to the name of the input that does")
    length = about.lead.length
    pairs = {f"padding by {n:,} to {length + n:,} positions": padded(about, n)}
    pairs[UNUSUAL] = padded(about, n, other=True)
    try:
        movements = about.all_moved(pairs)
    except ModelFailed:
        return _of_one_length(about)
    how = f"One row of {length:,} positions, alone and padded by {n:,}"
    in_batch = dict(_own_padding(about))
    if max(each.wide for each in movements.values()) <= LEAK:
        with suppress(UserError):
            movements |= about.all_moved(in_batch)
        more = _lengths(about, (*FEW, *to_blocks(length)))
        pairs |= in_batch | more
        with suppress(UserError):
            movements |= about.all_moved(more) if more else {}
        movements |= _other_side(about, pairs)
        movements |= _implementations(about)
        how += f", by {', '.join(map(str, FEW))}, and to multiples of {', '.join(map(str, BLOCKS))}"
    return leak(about, movements, pairs, "padding", how, unusual=UNUSUAL)


def padded(
    about: Examination, n: int, *, other: bool = False, side: Side | None = None
) -> PassPair:
    """Return the comparison of the longest row padded by n positions with the row alone."""
    side = side or about.example.side
    overlap = Overlap(side, length=about.lead.length, padding=n)
    return PassPair(about.example.padded(n, other=other, side=side), about.lead, overlap)


def to_blocks(length: int) -> list[int]:
    """Return the amounts of padding up to lengths around the next multiples of 32, 64 and 128."""
    around = BLOCKS if length < LONG else dict.fromkeys(BLOCKS, (1,))
    totals = {-(-(length + 2) // n) * n + more for n, each in around.items() for more in each}
    return [total - length for total in sorted(totals)]


def _own_padding(about: Examination) -> Iterable[tuple[str, PassPair]]:
    """Yield the comparisons of rows with and without their padding in the batch."""
    example = about.example
    for row in about.rows:
        if pads := example.length - example.lengths[row]:
            overlap = Overlap(example.side, length=example.lengths[row], padding=pads)
            name = f"row {about.number(row)} with its padding of {pads:,}"
            yield name, PassPair(about.one(row), about.alone(row), overlap)


def _lengths(
    about: Examination, amounts: Iterable[int], side: Side | None = None
) -> dict[str, PassPair]:
    """Return the comparisons in which the output changes by more than rounding in its dtype."""
    moving = {}
    on = f" on the {side}" if side else ""
    for n in dict.fromkeys(amounts):
        pair = padded(about, n, side=side)
        if about.stands_out(pair):
            moving[f"padding by {n:,} to {about.lead.length + n:,} positions{on}"] = pair
    return moving


def _other_side(about: Examination, pairs: dict[str, PassPair]) -> dict[str, Moved]:
    """Return the changes by padding on the other side, if the model allows it there.

    If padding by one changes the output, it does not: the model has learned positions, or groups
    positions, and the groups' boundaries shift.
    """
    side: Side = "left" if about.example.side == "right" else "right"
    few, more = (FEW[0], FEW[-1]), to_blocks(about.lead.length)[:1]
    if _lengths(about, few[:1], side):
        return {}
    odd = _lengths(about, few[1:], side)
    odd |= _lengths(about, more, side)
    pairs |= odd
    with suppress(UserError):
        return about.all_moved(odd)
    return {}


def _implementations(about: Examination) -> dict[str, Moved]:
    """Return the changes by padding with the model's other implementations of attention."""
    model = cast("Any", about.model)
    former = getattr(getattr(model, "config", None), "_attn_implementation", None)
    if not hasattr(model, "set_attn_implementation") or former not in IMPLEMENTATIONS:
        return {}
    movements: dict[str, Moved] = {}
    for name in IMPLEMENTATIONS:
        if name == former:
            continue
        with (
            suppress(Exception),
            about.runner.changed(lambda n=name: model.set_attn_implementation(n)),
        ):
            other = replace(about, _outputs={}, _variants={})
            for n in (about.example.pads, to_blocks(about.lead.length)[-1]):
                total = about.lead.length + n
                pair = padded(other, n)
                if other.stands_out(pair):
                    movements[f"{name} attention, padding by {n:,} to {total:,}"] = other.moved(
                        pair
                    )
    return movements


def _of_one_length(about: Examination) -> Finding:
    """Return the finding on a model that accepts only one length."""
    row, n = about.lead, about.example.pads
    if row.length <= n:
        n = max(1, row.length // 2)
    start = n if about.example.side == "left" else 0
    example = about.example
    short = example.cut(example.tokens, start, start + row.length - n)
    base, variant = (short.padded(n, other=other) for other in (False, True))
    overlap = Overlap(about.example.side, row.length, row.length - n)  # only real positions count
    pairs = {UNUSUAL: PassPair(variant, base, overlap)}
    how = f"One row of {row.length - n:,} positions, padded by {n:,}; longer rows fail"
    try:
        movements = about.all_moved(pairs)
    except ModelFailed:  # a row alone must have no padding, so rows are padded only in the batch
        pairs, how = _in_the_batch(about), "Each row alone and in the batch; padded rows alone fail"
        movements = about.all_moved(pairs)
    return leak(about, movements, pairs, "padding", how, unusual=UNUSUAL)


def _in_the_batch(about: Examination) -> dict[str, PassPair]:
    """Return the comparisons of rows alone, without padding, with the same rows in the batch.

    Raises UserError if no row has padding.
    """
    batch, rows, pairs = about.example, about.example.size, {}
    for row in about.rows:
        length = batch.lengths[row]
        if pads := batch.length - length:
            overlap = Overlap(batch.side, length=length, padding=pads, row=row, rows=rows)
            name = f"row {about.number(row)} with its padding of {pads:,} among {rows}"
            pairs[name] = PassPair(batch, about.alone(row), overlap)
    if not pairs:
        raise UserError("a padded row fails alone, and no row has padding in the batch")
    return pairs
