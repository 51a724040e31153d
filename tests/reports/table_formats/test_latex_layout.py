"""How a table in LaTeX fits on a page."""

from normlab.reports.table_formats.latex_layout import LatexRow, ScoreCell, TextCell, laid_out


def lines(names, columns, cell=ScoreCell("30.00", "0.10")):  # noqa: B008
    return [LatexRow((name,), (cell,) * columns) for name in names]


def head(columns):
    return ["", *(f"score {n}" for n in range(columns))]


def test_a_wide_table_gets_smaller_type_then_wrapped_names_then_blocks():
    small = laid_out(head(2), lines(["ln"], 2))
    assert small.size.latex == "" and len(small.blocks) == 1
    wide = laid_out(head(5), lines(["ln"], 5))
    assert "footnotesize" in wide.size.latex and len(wide.blocks) == 1
    long = "bn in the encoder, running statistics, padding counted"
    folded = laid_out(head(3), lines([long], 3))
    (name,) = (line.name for line in folded.blocks[0].lines)
    assert len(folded.blocks) == 1 and " ".join(name) == long and len(name) > 2
    split = laid_out(head(12), lines(["ln"], 12))
    assert len(split.blocks) > 1
    assert [title for block in split.blocks for (title,) in block.head[1:]] == head(12)[1:]


def test_a_block_leaves_out_its_empty_lines_but_keeps_titles():
    of_first = LatexRow(("",), (TextCell("-9.90 [-9.99, -9.81]"), *[TextCell("")] * 11))
    title = LatexRow(("batch size 8",), title=True)
    first, *others = laid_out(head(12), [title, *lines(["ln"], 12), of_first]).blocks
    assert len(first.lines) == 3 and first.lines[0] is title
    assert all(len(block.lines) == 2 and block.lines[0] is title for block in others)


def test_a_table_taller_than_a_page_is_marked():
    assert not laid_out(head(2), lines(["ln"] * 30, 2)).is_tall
    assert laid_out(head(2), lines(["ln"] * 60, 2)).is_tall
