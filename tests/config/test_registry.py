"""The config folder as a registry of options, and building objects from config nodes."""

from pathlib import Path

import pytest
import torch

from normlab.config import folders, registry
from normlab.config.objects import instantiate
from normlab.config.registry import option_settings
from normlab.norms.base import Norm
from normlab.norms.layer import LayerNorm
from normlab.tasks.base import Task
from normlab.training.schedule import Cosine, Schedule

LN = {"option": "ln", "eps": 1e-5, "affine": True}
BN = option_settings("norm", "bn", "norm")


@pytest.fixture
def root(tmp_path, monkeypatch):
    files = {
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
    monkeypatch.setattr(folders, "CONFIG_DIR", tmp_path)
    return tmp_path


def test_folders_with_options_are_groups(root):
    assert folders.groups() == ["hydra/sweeper", "norm"]
    assert registry.option_names("norm") == ["bn", "ln"] and registry.option_names("absent") == []


def test_the_opening_comment_is_the_description(root):
    bn, ln = registry.options("norm")
    assert (bn.name, bn.path) == ("bn", root / "norm" / "bn.yaml")
    assert bn.description == "Batch norm (Ioffe et al. 2015), pooled over all tokens."
    assert bn.details.endswith("Keeps running statistics.\n\nMore.")
    assert (ln.description, ln.details) == ("", "")


def test_instantiate_takes_values_from_the_node_and_arguments_from_the_caller():
    norm = instantiate({**LN, "eps": 0.5, "affine": False}, "norm", Norm, dim=6)
    assert type(norm) is LayerNorm
    assert norm.dim == 6 and norm.eps == 0.5 and not list(norm.parameters())


def test_nested_nodes_are_built_first():
    node = {"option": "translation", "corpus": {"data_dir": None}}
    with pytest.raises(ValueError, match=r"task\.corpus\.source_language is missing"):
        instantiate(node, "task", Task)
    node = {"option": "mlm", "corpus": {"option": "hub"}}
    with pytest.raises(ValueError, match=r"task\.corpus\.data_dir is missing"):
        instantiate(node, "task", Task)


def test_an_integer_is_accepted_as_a_float_but_not_the_reverse():
    node = {"option": "cosine", "lr": 1, "warmup": 4, "total": 9}
    schedule = instantiate({**node, "final": 0}, "schedule", Schedule)
    assert type(schedule) is Cosine
    norm = instantiate({**LN, "eps": 1}, "norm", Norm, dim=4)
    assert type(norm.eps) is float
    with pytest.raises(ValueError, match=r"schedule\.warmup=4\.5: Expected `int`"):
        instantiate({**node, "final": 0, "warmup": 4.5}, "schedule", Schedule)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epss": 1}, r"norm\.epss does not exist; choose from eps, momentum, affine"),
        ({"eps": "small"}, r"norm\.eps='small': Expected `float`"),
        ({"eps": True}, r"norm\.eps=True: Expected"),
        ({"affine": 1}, r"norm\.affine=1 must be true, false, scale"),
        ({"padding": "exlude"}, r"norm\.padding='exlude' .*must be exclude, include, fill"),
        ({"dim": 8}, r"norm\.dim does not exist"),  # an argument of the caller, not a config value
    ],
)
def test_a_wrong_key_or_value_is_an_error_with_the_allowed_ones(change, message):
    with pytest.raises(ValueError, match=message):
        instantiate({**BN, **change}, "norm", Norm, dim=4)


@pytest.mark.parametrize("option", ["nothing", "../norm/bn", None])
def test_the_error_for_an_unknown_option_lists_the_available_ones(option):
    said = r"norm\.option=.* does not exist here; choose from ada, bhyt, bn,"
    with pytest.raises(ValueError, match=said):
        instantiate({"option": option}, "norm", Norm, dim=4)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("normlab.norms.layer.LayrNorm", "cannot be imported"),
        ("normlab.nroms.LayerNorm", "cannot be imported"),
        ("os.system", "is not a concrete subclass of Norm"),
        ("normlab.norms.base.Norm", "is not a concrete subclass"),
    ],
)
def test_a_target_must_be_an_importable_concrete_subclass(target, message):
    with pytest.raises(ValueError, match=rf"norm: '{target}' {message}"):
        instantiate({"_target_": target}, "norm", Norm, dim=4)


def test_an_option_is_looked_up_without_listing_its_group(monkeypatch):
    monkeypatch.setattr(Path, "glob", None)
    assert option_settings("norm", "bn", "norm")["eps"] == 1e-5


def test_an_option_name_cannot_be_a_path():
    with pytest.raises(ValueError, match=r"norm.option='../optim/adam' does not exist here"):
        option_settings("norm", "../optim/adam", "norm")


def test_a_torch_optimizer_gets_its_settings_and_refuses_wrong_ones():
    parameters = [torch.nn.Parameter(torch.zeros(2))]
    node = {"option": "sgd", "lr": 0.25, "momentum": 0.5}
    optimizer = instantiate(node, "optim", torch.optim.Optimizer, params=parameters)
    assert isinstance(optimizer, torch.optim.SGD)
    assert optimizer.param_groups[0]["lr"] == 0.25
    with pytest.raises(ValueError, match=r"optim\.momentun does not exist"):
        instantiate({**node, "momentun": 1}, "optim", torch.optim.Optimizer, params=parameters)
    with pytest.raises(ValueError, match=r"optim: SGD rejects lr=0\.25, momentum=-1\.0"):
        instantiate({**node, "momentum": -1}, "optim", torch.optim.Optimizer, params=parameters)
