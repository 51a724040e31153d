"""Names for readers: the user's own, and full names of norms in papers."""

import pytest

from normlab.errors import UserError
from normlab.publishing.study_arrangement import study_arrangement
from normlab.reports.renaming import chosen_names, with_row_names
from normlab.reports.table_formats.latex import latex_table
from normlab.reports.tables.build_table import build_table
from tests.reports.handmade import BLEU, made, run, study


@pytest.fixture
def sized():
    """Return the runs of three rows at two batch sizes, as for a table."""
    rows = {row: (f"norm={row[:2]}",) for row in ("ln", "bn, lr=1", "bn+ln pre")}
    found = [
        run(made("ln", 1, {BLEU: 30.0}), row, 1, f"batch_size={n}") for row in rows for n in (8, 32)
    ]
    grid = {"batch_size": {"8": (), "32": ()}}
    return study_arrangement(study(rows=rows, grid=grid, columns=(BLEU,)), "smoke", found)


def test_latex_uses_the_full_names_of_norms_unless_the_user_renames_them(sized):
    full = latex_table(build_table(with_row_names(sized, {}, full=True)))
    assert all(f"\n{row} & 30.00" in full for row in ("Layer norm", "Batch norm + Layer norm pre"))
    words = ["ln=LN", "bn, lr=1=BN & co", "batch_size=sentences", f"{BLEU}=quality"]
    names = chosen_names(words, [sized])
    named = build_table(with_row_names(sized, names, full=True), names)
    rows = [*dict.fromkeys(row.name for row in named.rows)]
    assert rows == ["LN", "BN & co", "Batch norm + LN pre"] and named.head[2] == "quality"
    text = latex_table(named)
    assert r"sentences & 8 & 32 \\" in text and r"BN \& co & 30.00" in text
    assert r"\label{tab:norms-smoke}" in text


def test_renaming_an_unknown_row_or_two_rows_to_the_same_name_is_an_error(sized):
    assert chosen_names(["gn=GN"], [sized]) == {"gn": "GN"}, "a norm may have no row yet"
    for wrong in (["xn=GN"], ["ln"], ["ln="]):
        with pytest.raises(UserError, match=r"must have the form NAME=TEXT.*choose from ln; bn"):
            chosen_names(wrong, [sized])
    with pytest.raises(UserError, match="would give the rows ln and bn, lr=1 the same name, X"):
        with_row_names(sized, {"ln": "X", "bn, lr=1": "X"})


def test_names_set_by_the_user_are_kept_when_others_become_full_names(sized):
    mine = with_row_names(sized, {"ln": "LN, mine", "bn, lr=1": "tuned, slow"})
    assert [*mine.rows] == ["LN, mine", "tuned, slow", "bn + LN, mine pre"]
    paper = with_row_names(mine, {}, full=True)
    assert [*paper.rows] == ["LN, mine", "tuned, slow", "Batch norm + LN, mine pre"]
    assert paper.rows["tuned, slow"].in_sentence == "tuned, slow", "no setting in brackets"
    assert {run.key.row for run in paper.runs} == {*paper.rows}
