"""What Hydra users are used to works: its flags, search path and state, and edited files."""

import os
import sys
from pathlib import Path

import hydra
import pytest
import yaml
from hydra.core.global_hydra import GlobalHydra

import normlab
from normlab.cli import main
from normlab.commands import train as train_command
from normlab.config import folders, instantiation, registry
from normlab.norms.make import make_norm
from tests.records.examples import record

SLOW = "# Slow.\n_target_: {target}\neps: {eps}\n"
CODE = "from normlab.norms.base import NoNorm\n\nclass {name}(NoNorm):\n    def __init__(self, dim, *, eps: float):\n        super().__init__(dim)\n"  # noqa: E501


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Return a folder of options with a user's norm, which is not yet on any search path."""
    (tmp_path / "own" / "norm").mkdir(parents=True)
    (tmp_path / "own" / "habit_one.py").write_text(CODE.format(name="One"))
    (tmp_path / "own" / "habit_two.py").write_text(CODE.format(name="Two"))
    option(tmp_path / "own", "habit_one.One", 0.1)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv(folders.PATH, "")
    yield tmp_path / "own"
    folders._own_folders.cache_clear()
    for name in ("habit_one", "habit_two"):
        sys.modules.pop(name, None)
        instantiation._IMPORTED.pop((tmp_path / "own" / f"{name}.py").resolve(), None)


def option(folder: Path, target: str, eps: float) -> None:
    (folder / "norm" / "slow.yaml").write_text(SLOW.format(target=target, eps=eps))


@pytest.mark.parametrize(
    "words",
    [
        ["--config-dir", "{own}"],
        ["--config-dir={own}"],
        ["-cd", "{own}"],
        ["hydra.searchpath=[file://{own}]"],
        ["+hydra.searchpath=['{own}']"],
    ],
)
def test_a_folder_of_options_can_be_added_with_the_flags_of_hydra(words, own, capsys):
    argv = [word.format(own=own) for word in words]
    assert main(["train", "norm=slow", "task=toy", "--cfg", "job", *argv]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["norm"] == {"option": "slow", "eps": 0.1}
    assert os.environ[folders.PATH] == str(own) and type(make_norm("slow", 4)).__name__ == "One"


def test_a_search_path_that_does_not_exist_is_an_error(own, capsys):
    for place, said in (
        ("pkg://no_such.configs", "the package 'no_such' is not installed"),
        ("file:///no", "/no is not a folder"),
    ):
        assert main(["train", f"hydra.searchpath=[{place}]", "task=toy"]) == 1
        assert said in capsys.readouterr().err


def test_every_way_to_print_the_config_prints_the_config_that_runs(capsys):
    printed = []
    for words in (["--cfg", "job"], ["--cfg", "job", "--resolve"], ["hydra.job.chdir=false"]):
        words = words if "--cfg" in words else [*words, "--cfg=job"]
        assert main(["train", "task=iwslt", "norm=bn", "data_dir=x", *words]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] == printed[2] and "${" not in printed[0]
    assert yaml.safe_load(printed[0])["choices"]["recipe"] == "rbn"
    assert main(["train", "task=toy", "--cfg", "job", "-m"]) == 1
    assert "omit -m" in capsys.readouterr().err


@pytest.mark.parametrize("more", [[], ["hydra.job.chdir=false"]])
def test_an_interrupted_run_exits_with_130_with_and_without_hydra_settings(
    more, monkeypatch, capsys, tmp_path
):
    stopped = record(status="interrupted")
    monkeypatch.setattr(train_command, "train_and_summarize", lambda config: stopped)
    monkeypatch.chdir(tmp_path)
    assert main(["train", "task=toy", "scale=smoke", *more]) == 130
    assert "to resume: normlab train task=toy" in capsys.readouterr().err


def test_composing_leaves_the_hydra_state_of_the_caller_unchanged(tmp_path):
    (tmp_path / "mine.yaml").write_text("a: 1\n")
    with hydra.initialize_config_dir(str(tmp_path), version_base="1.3"):
        normlab.compose(["task=toy"])
        assert GlobalHydra.instance().is_initialized() and hydra.compose("mine").a == 1
    assert not GlobalHydra.instance().is_initialized()


def test_an_edited_option_file_is_read_again_and_edited_code_is_refused(own, monkeypatch):
    monkeypatch.setenv(folders.PATH, str(own))
    assert type(make_norm("slow", 4)).__name__ == "One"
    option(own, "habit_two.Two", 0.25)
    assert normlab.compose(["norm=slow"]).norm.eps == 0.25
    assert type(make_norm("slow", 4)).__name__ == "Two"
    (own / "habit_two.py").write_text(CODE.format(name="Two") + "\n# edited\n")
    with pytest.raises(normlab.UserError, match=r"habit_two\.py has changed since it was imported"):
        make_norm("slow", 4)


def test_composing_again_does_not_parse_unchanged_files(monkeypatch):
    normlab.compose(["norm=bn", "task=toy"])
    parsed = []
    load = yaml.load
    monkeypatch.setattr(yaml, "load", lambda *a, **k: parsed.append(a) or load(*a, **k))
    normlab.compose(["norm=bn", "task=toy", "seed=2"])
    assert not parsed


def test_an_option_file_reads_decimal_numbers_and_keeps_words_like_no_as_text(tmp_path):
    text = "a: 010\nb: 2024_11_28\nc: no\nd: 1e-5\ne: true\nf: 1:30\ng: .inf\nh:\ni: -.5\n"
    (tmp_path / "mine.yaml").write_text(text)
    found = registry.read_option(tmp_path / "mine.yaml")
    expected = [10, "2024_11_28", "no", 1e-5, True, "1:30", float("inf"), None, -0.5]
    assert [*found.values()] == expected
