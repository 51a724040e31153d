"""The config folder as a registry of options."""

from pathlib import Path

import pytest

from normlab.config import folders, registry
from normlab.config.instantiation import instantiate
from normlab.config.registry import option_settings
from normlab.norms.base import Norm


@pytest.fixture
def root(tmp_path, monkeypatch):
    files = {
        "norm/bn.yaml": "_target_: a\n",
        "norm/ln.yaml": "_target_: b\n",
        "hydra/sweeper/mine.yaml": "# A sweeper\n",
        "norm/notes.md": "",
        "empty/readme.md": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(folders, "CONFIG_DIR", tmp_path)
    return tmp_path


def test_folders_with_options_are_groups(root):
    assert folders.groups() == ["hydra/sweeper", "norm"]
    assert registry.option_names("norm") == ["bn", "ln"] and registry.option_names("absent") == []


@pytest.mark.parametrize("option", ["nothing", "../norm/bn", 5])
def test_the_error_for_an_unknown_option_lists_the_available_ones(option):
    said = r"norm\.option=.* does not exist here; choose from ada, bhyt, bn,"
    with pytest.raises(ValueError, match=said):
        instantiate({"option": option}, "norm", Norm, dim=4)


def test_an_option_is_looked_up_without_listing_its_group(monkeypatch):
    monkeypatch.setattr(Path, "glob", None)
    assert option_settings("norm", "bn", "norm")["eps"] == 1e-5


def test_an_option_name_cannot_be_a_path():
    with pytest.raises(ValueError, match=r"norm.option='../optim/adam' does not exist here"):
        option_settings("norm", "../optim/adam", "norm")
