"""Building objects from config nodes."""

import pytest
import torch

from normlab.config.instantiation import instantiate
from normlab.config.registry import option_settings
from normlab.norms.base import Norm
from normlab.norms.layer import LayerNorm
from normlab.tasks.base import Task
from normlab.training.schedule import Cosine, Schedule

LN = {"option": "ln", "eps": 1e-5, "affine": True}
BN = option_settings("norm", "bn", "norm")


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
        ({"eps": None}, r"norm\.eps=null: Expected `float`"),
        ({"padding": "exlude"}, r"norm\.padding='exlude' .*must be exclude, include, fill"),
        ({"dim": 8}, r"norm\.dim does not exist"),  # an argument of the caller, not a config value
    ],
)
def test_a_wrong_key_or_value_is_an_error_with_the_allowed_ones(change, message):
    with pytest.raises(ValueError, match=message):
        instantiate({**BN, **change}, "norm", Norm, dim=4)


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


class Bare(LayerNorm):
    """A norm of another package, without settings."""

    def __init__(self, dim: int):
        self.weight = torch.nn.Parameter(torch.ones(dim))  # before Module.__init__


def test_an_error_about_a_class_without_settings_has_no_empty_list():
    node = {"_target_": f"{__name__}.Bare"}
    with pytest.raises(ValueError, match=r"norm: Bare cannot be built: cannot assign parameters"):
        instantiate(node, "norm", Norm, dim=4)
    with pytest.raises(ValueError, match=r"norm\.eps does not exist; norm has no settings"):
        instantiate({**node, "eps": 1}, "norm", Norm, dim=4)
