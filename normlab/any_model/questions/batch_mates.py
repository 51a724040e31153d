"""The question of whether the other rows of a batch change a row's output."""

from normlab.any_model.batches.outputs import Overlap
from normlab.any_model.questions.examination import Examination, PassPair
from normlab.any_model.questions.leak import leak_finding
from normlab.findings.finding import Finding
from normlab.findings.question import question


@question("batch_mates", of="module")
def batch_mates(examination: Examination) -> Finding:
    """Do the other rows of the batch change a row's output?

    This is asked for the first, the last, the longest and the middle row. Let y be the output for
    the row alone, and y' its output in the batch, in the batch with the rows in reverse order and,
    for the longest row, in the batch with different values in all other rows.
    """
    batch, rows = examination.example, examination.example.size
    main, base = next(iter(examination.outputs(examination.one(batch.lead)).items()))
    if (y := examination.outputs(batch)[main]).shape == base.shape:
        return Finding.none("the output has no batch axis")
    if y.ndim == base.ndim + 1:
        text = f"the output is {[*y.shape]}, but {[*base.shape]} for one row: its axis is dropped"
        return Finding(f"{text}, as by squeeze() without an axis", verdict="look")
    in_reverse, others = batch.reversed(), batch.with_other_rows(batch.lead)
    examination.keep(in_reverse)
    comparisons: dict[str, PassPair] = {}
    for row in examination.rows:
        for name, variant, place in (
            ("", batch, row),
            (" in reverse order", in_reverse, rows - 1 - row),
        ):
            overlap = Overlap(batch.side, row=place, rows=rows)
            pair = PassPair(variant, examination.one(row), overlap, examination.alone(row))
            comparisons[f"row {examination.number(row)} among {rows}{name}"] = pair
    name = f"row {examination.number(batch.lead)} among {rows} with other values"
    overlap = Overlap(batch.side, row=batch.lead, rows=rows)
    comparisons[name] = PassPair(
        others, examination.one(batch.lead), overlap, examination.alone(batch.lead)
    )
    changes = examination.changes(comparisons)
    return leak_finding(
        examination, changes, comparisons, "other rows", f"Each row alone and among {rows}"
    )
