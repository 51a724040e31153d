"""The marks of a class after a norm."""

import pytest

import normlab
from normlab.commands.explain import main


def printed(capsys, *argv):
    assert main(list(argv)) == 0
    return capsys.readouterr().out


def test_the_marks_of_a_class_are_z_scores(capsys):
    out = printed(capsys, "bn", "ln", "--table", "marks")
    rows = [line.split() for line in out.splitlines() if line.startswith("Ming")]
    # The class's marks in maths: 95 75 55; Ming's marks: 95 60 85.
    assert rows[0][4] == f"{20 / (800 / 3) ** 0.5:+.2f}"
    assert rows[1][4] == f"{15 / (650 / 3) ** 0.5:+.2f}"
    with pytest.raises(ValueError, match="show norms"):
        main(["placement=pre", "--table", "marks"])


def test_the_marks_have_no_layout():
    with pytest.raises(ValueError, match="--layout images and --table marks are two examples"):
        normlab.explain("bn", layout="images", table="marks")
