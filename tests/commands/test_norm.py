"""`normlab norm new` never overwrites; `norm check` and `norm card` refuse unknown norms."""

import sys

import pytest

from normlab.cli import main
from normlab.config import folders
from normlab.inspection.norm import new_norm


@pytest.fixture
def places(tmp_path, monkeypatch):
    monkeypatch.chdir(folders.CONFIG_DIR.parent)
    found = tmp_path / "mine.py", tmp_path / "mine.yaml"
    monkeypatch.setattr(new_norm, "files_of_norm", lambda *_: new_norm.NormFiles(*found))
    return found


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["new", "ln"], "ln.yaml exists"),
        (["new", "layer"], "layer.py exists"),
        (["new", "../x"], "beginning with a letter"),
        (["new", "pass"], "no keyword of Python"),
        (["new", "x" * 41], "at most 40"),
        (["check", "lm"], "'lm' is not an option of the group 'norm'"),
        (["card", "lm", "scale=smoke"], "'lm' is not an option of the group 'norm'"),
    ],
)
def test_existing_invalid_and_unknown_names_of_norms_are_refused(
    arguments, told, monkeypatch, capsys
):
    monkeypatch.chdir(folders.CONFIG_DIR.parent)
    there = set(new_norm.files_of_norm("x", None)[0].parent.iterdir())
    assert main(["norm", *arguments]) == 1
    assert told in capsys.readouterr().err
    assert set(new_norm.files_of_norm("x", None)[0].parent.iterdir()) == there


@pytest.mark.parametrize("there", [0, 1])
def test_norm_new_does_not_overwrite_a_file(there, places, capsys):
    places[there].write_text("of a colleague")
    assert main(["norm", "new", "mine"]) == 1
    assert f"{places[there].name} exists" in capsys.readouterr().err
    assert [path.exists() for path in places] == [there == 0, there == 1]


@pytest.mark.parametrize(("name", "told"), [("ln", "ln.yaml exists"), ("json", "another Python")])
def test_a_norm_in_a_separate_folder_cannot_reuse_an_existing_name(name, told, tmp_path, capsys):
    assert main(["norm", "new", name, "--in", str(tmp_path)]) == 1
    assert told in capsys.readouterr().err and not [*tmp_path.rglob("*.*")]


@pytest.mark.parametrize("installed", [True, False])
def test_a_new_norm_is_written_to_the_current_folder(installed, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(folders, "INSTALLED", installed)
    monkeypatch.setenv(folders.PATH, "")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    name = f"here{installed:d}"
    assert main(["norm", "new", name]) == 0
    said = capsys.readouterr().out
    assert f"normlab norm check {name} include=." in said and "golden" not in said
    assert max(map(len, said.splitlines())) <= 80
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*"))
    assert files == [f"{name}.py", f"norm/{name}.yaml"]
    assert main(["norm", "check", name, "include=."]) == 0


def test_at_the_root_of_a_checkout_the_norm_is_added_to_normlab(places, capsys):
    assert main(["norm", "new", "mine"]) == 0
    said = capsys.readouterr().out
    assert "normlab norm check mine  " in said and "python scripts/golden.py --new" in said
    assert "normlab.norms.mine.MineNorm" in places[1].read_text()


def test_the_commands_that_norm_new_prints_include_the_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(folders.PATH, "my own")  # in NORMLAB_PATH before it exists
    monkeypatch.syspath_prepend(tmp_path)
    (
        tmp_path / "mine"
    ).mkdir()  # `study run --publish mine` makes such a folder, which is not a module
    assert main(["norm", "new", "mine", "--in", "my own"]) == 0
    assert "normlab norm check mine include='my own'" in capsys.readouterr().out
    assert main(["norm", "new", "mine", "--in", "my own"]) == 1
    assert "mine.py exists" in capsys.readouterr().err
