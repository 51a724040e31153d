"""`normlab norm new` writes nothing over; `normlab norm check` is for norms there are."""

import pytest

from normlab.cli import main
from normlab.commands import norm


@pytest.fixture
def places(tmp_path, monkeypatch):
    found = tmp_path / "mine.py", tmp_path / "mine.yaml"
    monkeypatch.setattr(norm, "places", lambda name: found)
    return found


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("ln", "ln.yaml exists"),
        ("model", "model.py exists"),
        ("../x", "a letter first"),
        ("pass", "no word of Python"),
        ("x" * 41, "at most 40"),
    ],
)
def test_a_name_that_cannot_be_is_refused(name, told, capsys):
    there = set(norm.places("x")[0].parent.iterdir())
    assert main(["norm", "new", name]) == 1
    assert told in capsys.readouterr().err
    assert set(norm.places("x")[0].parent.iterdir()) == there


def test_the_class_is_named_after_the_norm():
    assert [norm.title_of(name) for name in ("peak", "peak_norm", "norm_x", "norm")] == [
        *("PeakNorm", "PeakNorm", "NormXNorm", "NormNorm")
    ]


@pytest.mark.parametrize("there", [0, 1])
def test_nothing_is_written_over(there, places, capsys):
    places[there].write_text("of a colleague")
    assert main(["norm", "new", "mine"]) == 1
    assert f"{places[there].name} exists" in capsys.readouterr().err
    assert [path.exists() for path in places] == [there == 0, there == 1]
    assert places[there].read_text() == "of a colleague"


def test_checking_names_the_norms_there_are(capsys):
    assert main(["norm", "check", "lm"]) == 1
    assert "no norm 'lm'" in (said := capsys.readouterr().err) and "Did you mean" in said


def test_a_card_is_asked_for_by_the_name_of_the_norm(capsys):
    assert main(["norm", "card", "lm", "scale=smoke"]) == 1
    assert "no option 'lm' of the group 'norm'" in capsys.readouterr().err
