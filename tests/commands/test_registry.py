"""The config folder is read as it lies there."""

import pytest

from normlab.config import registry


@pytest.fixture
def root(tmp_path):
    files = {
        "config.yaml": (
            "# a run\ndefaults:\n  - schema\n  - norm: ln\n  - norm@decoder_norm: null\n"
            "  - override /norm@x.inner: null\n  - _self_\n"
            "seed: 1  # why\nmax_tokens: null\nbudget:\n  steps: 3\n  epochs: null\n"
            "hydra: {run: {dir: .}}\n"
        ),
        "norm/bn.yaml": (
            "# @package _here_\n# normlab train norm=bn\n# Batch norm (Ioffe et al. 2015), pooled\n"
            "# over all tokens. Keeps running statistics.\n#\n# More.\n_target_: a\n# not this\n"
        ),
        "norm/ln.yaml": "_target_: b\n",
        "hydra/sweeper/mine.yaml": "# A sweeper\n",
        "norm/notes.md": "",
        "empty/readme.md": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_folders_with_options_are_groups(root):
    assert registry.groups(root) == ["hydra/sweeper", "norm"]
    assert registry.option_names("norm", root) == ["bn", "ln"]
    assert registry.option_names("absent", root) == []


def test_the_opening_comment_is_the_description(root):
    bn, ln = registry.options("norm", root)
    assert (bn.group, bn.name, bn.path) == ("norm", "bn", root / "norm" / "bn.yaml")
    assert bn.command == "normlab train norm=bn"
    assert bn.description == "Batch norm (Ioffe et al. 2015), pooled over all tokens."
    assert bn.details.endswith("Keeps running statistics.\n\nMore.")
    assert (ln.command, ln.description, ln.details) == ("", "", "")


def test_an_unknown_group_names_the_allowed_ones(root):
    with pytest.raises(ValueError, match=r"'nrom'.*allowed: hydra/sweeper, norm"):
        registry.options("nrom", root)


def test_keys_and_sites_come_from_the_root_file(root):
    assert registry.top_level_keys(root) == ["budget.epochs", "budget.steps", "max_tokens", "seed"]
    assert registry.sites(root) == ["norm@decoder_norm", "norm@x.inner"]


def test_the_projects_own_folder_is_found():
    assert {"norm", "placement", "task"} <= set(registry.groups())
    assert {"seed", "batch_size", "budget.steps"} <= set(registry.top_level_keys())
    assert "norm@decoder_norm" in registry.sites()
