"""A norm of one's own is begun whole or not at all; `normlab norm check` is for norms there are."""

import contextlib

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
        ("ln", "there is a norm ln"),
        ("model", "model.py exists"),
        ("MyNorm", "such as my_norm"),
        ("../x", "such as x"),
        ("pass", "no word of Python"),
        ("2x", "a letter first"),
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


def test_a_norm_is_begun_whole_or_not_at_all(places, monkeypatch):
    from normlab.records import files

    whole = files.atomic_write

    @contextlib.contextmanager
    def full(path):
        if path == places[1]:
            raise OSError(28, "No space left on device", str(path))
        with whole(path) as file:
            yield file

    with monkeypatch.context() as patch:
        patch.setattr(files, "atomic_write", full)
        assert main(["norm", "new", "mine"]) == 1
    assert not any(path.exists() for path in places)
    assert main(["norm", "new", "mine"]) == 0
    assert all(path.exists() for path in places)


@pytest.mark.parametrize("there", [0, 1, 2])
def test_a_killed_begin_is_finished_by_the_same_command(there, places):
    assert main(["norm", "new", "mine"]) == 0
    texts = [path.read_bytes() for path in places]
    for path in places[there:]:
        path.unlink()
    assert main(["norm", "new", "mine"]) == 0
    assert [path.read_bytes() for path in places] == texts


def test_checking_names_the_norms_there_are(capsys):
    assert main(["norm", "check", "lm"]) == 1
    assert "no norm 'lm'" in (said := capsys.readouterr().err) and "Did you mean" in said


def test_a_card_is_asked_for_by_the_name_of_the_norm(capsys):
    assert main(["norm", "card", "lm", "scale=smoke"]) == 1
    assert "no option 'lm' of the group 'norm'" in capsys.readouterr().err
