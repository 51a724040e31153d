"""The legend below tables."""

from normlab.reports.legend import About, Note, print_legend


def test_a_legend_has_the_brief_notes_on_three_lines_and_mentions_the_others(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    notes = [Note(f"note {n} in full", f"note number {n} in brief, about a row") for n in range(9)]
    print_legend([*notes, Note("only in full")], whole=False)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and lines[0].startswith("note number 0 in brief")
    assert lines[-1].endswith("all notes: --notes") and "number 8" not in " ".join(lines)


def test_full_notes_are_printed_once_each_and_short_ones_are_already_in_full(capsys):
    print_legend([Note("one", "o"), Note("one", "o"), Note("two")], whole=True)
    assert capsys.readouterr().out == "one\ntwo\n"
    print_legend([Note("bold: best", in_terminal="*: best")], whole=True)
    assert capsys.readouterr().out == "*: best\n"
    print_legend([Note.short("one"), Note.short("one")], whole=False)
    assert capsys.readouterr().out == "one\n"


def test_notes_on_how_to_read_values_are_routine_and_notes_on_seeds_are_not():
    assert About.VALUES.is_routine and not About.SEEDS.is_routine
