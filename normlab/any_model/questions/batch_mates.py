"""The question of whether the other rows of a batch change a row's output."""

from torch import Tensor

from normlab.any_model.batches.example import Example
from normlab.any_model.batches.overlap import Padded, RowInBatch, comparable
from normlab.any_model.questions.examination import Examination, PassPair
from normlab.any_model.questions.leak import leak_finding
from normlab.findings.finding import Finding
from normlab.findings.question import question


@question("batch_mates", of="module")
def batch_mates(examination: Examination) -> Finding:
    """Do the other rows of the batch change a row's output?

    This is asked for the first, the last, the longest and the middle row. Let y be the output for
    the row alone, and y' its output in the batch, in the batch with the rows in reverse order and,
    for the longest row, in the batch with different values in all other rows. If the output is a
    list with one entry per row, the row's entry is compared. Outputs without a batch axis are not.
    """
    batch = examination.example
    alone = examination.alone(batch.longest, with_padding=True)
    overlap = RowInBatch(batch.longest, batch.size, Padded(batch.side))
    compared = comparable(examination.outputs(batch), examination.outputs(alone), overlap)
    y, base, how_main = next(iter(compared.values()))
    if not how_main.concerns(y, base):
        return Finding.none("no output has a batch axis")
    if how_main is overlap and y.ndim == base.ndim + 1:
        return Finding(_dropped_axis_in_words(y, base), verdict="look")
    pairs = _pairs(examination)
    how = f"Each row alone and among {batch.size}"
    return leak_finding(examination, examination.changes(pairs), pairs, "other rows", how)


def _pairs(examination: Examination) -> dict[str, PassPair]:
    """Return the comparisons of rows alone with the same rows in the batch and its two variants."""
    batch, size = examination.example, examination.example.size
    in_reverse, others = batch.reversed(), batch.with_other_rows(batch.longest)
    examination.keep(in_reverse)

    def pair(row: int, variant: Example, index: int) -> PassPair:
        """Compare a row alone with itself as row `index` of a variant of the batch."""
        alone = examination.alone(row, with_padding=True)
        overlap = RowInBatch(index, size, Padded(batch.side))
        return PassPair(variant, alone, overlap, within=examination.alone(row))

    pairs: dict[str, PassPair] = {}
    for row in examination.rows:
        name = f"row {examination.row_label(row)} among {size}"
        pairs[name] = pair(row, batch, row)
        pairs[f"{name} in reverse order"] = pair(row, in_reverse, size - 1 - row)
    name = f"row {examination.row_label(batch.longest)} among {size} with other values"
    pairs[name] = pair(batch.longest, others, batch.longest)
    return pairs


def _dropped_axis_in_words(y: Tensor, base: Tensor) -> str:
    return (
        f"the output is {[*y.shape]}, but {[*base.shape]} for one row: its axis is dropped, as by "
        "squeeze() without an axis"
    )
