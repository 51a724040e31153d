"""From a node to an object: what is built, and which values are refused with which words."""

import pytest

from normlab.config.registry import instantiate
from normlab.norms.base import Norm
from normlab.norms.batch import BatchNorm
from normlab.norms.local import LayerNorm
from normlab.tasks.base import Task
from normlab.train.schedule import Cosine, Schedule

LN = {"option": "ln", "eps": 1e-5, "affine": True}
BN = {
    "option": "bn",
    "eps": 1e-5,
    "momentum": 0.1,
    "affine": True,
    "padding": "exclude",
    "eval_stats": "running",
    "sync": True,
    "unbiased": True,
}


def test_values_come_from_the_node_and_live_objects_from_the_caller():
    norm = instantiate({**LN, "eps": 0.5, "affine": False}, "norm", Norm, dim=6)
    assert type(norm) is LayerNorm
    assert norm.dim == 6 and norm.eps == 0.5 and not list(norm.parameters())


def test_nodes_inside_a_node_are_built_first():
    node = {"option": "translation", "corpus": {"data_dir": None}}
    with pytest.raises(ValueError, match=r"task\.corpus\.source_language is missing"):
        instantiate(node, "task", Task)
    node = {"option": "mlm", "corpus": {"option": "hub"}}
    with pytest.raises(ValueError, match=r"task\.corpus\.data_dir is missing"):
        instantiate(node, "task", Task)


def test_a_whole_number_serves_as_a_float_but_not_the_other_way_round():
    node = {"option": "cosine", "lr": 1, "warmup": 4, "total": 9}
    schedule = instantiate({**node, "final": 0}, "schedule", Schedule)
    assert type(schedule) is Cosine
    norm = instantiate({**LN, "eps": 1}, "norm", Norm, dim=4)
    assert type(norm.eps) is float
    with pytest.raises(ValueError, match=r"schedule\.warmup=4\.5 does not fit: allowed is int"):
        instantiate({**node, "final": 0, "warmup": 4.5}, "schedule", Schedule)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epss": 1}, r"norm\.epss does not exist: norm has eps, momentum, affine"),
        ({"eps": "small"}, r"norm\.eps='small' does not fit: allowed is float"),
        ({"eps": True}, r"norm\.eps=True does not fit"),
        ({"eps": None}, r"norm\.eps=None does not fit"),
        ({"affine": 1}, r"norm\.affine=1 does not fit: allowed is bool"),
        ({"padding": "exlude"}, r"norm\.padding='exlude' .*allowed is exclude, include, fill"),
        ({"eval_stats": "eval"}, r"norm\.eval_stats='eval' .*: allowed is running, batch, recal"),
        ({"dim": 8}, r"norm\.dim does not exist"),  # a live object is no value of the config
    ],
)
def test_a_wrong_key_or_value_is_named_with_what_is_allowed(change, message):
    with pytest.raises(ValueError, match=message):
        instantiate({**BN, **change}, "norm", Norm, dim=4)


def test_a_missing_value_is_named():
    node = {key: value for key, value in BN.items() if key != "momentum"}
    with pytest.raises(ValueError, match=r"norm\.momentum is missing"):
        instantiate(node, "norm", Norm, dim=4)


@pytest.mark.parametrize("option", ["nothing", "../norm/bn", "BatchNorm", "", None, 7])
def test_an_option_that_does_not_exist_is_named_with_the_options_there_are(option):
    with pytest.raises(
        ValueError, match=r"norm\.option=.* does not exist here: there are ada, bn,"
    ):
        instantiate({"option": option}, "norm", Norm, dim=4)


@pytest.mark.parametrize("node", [5, "bn", None, [1], {}, {"a": 1}])
def test_a_node_without_an_option_is_refused(node):
    with pytest.raises(ValueError, match=r"^norm(=|\.option=)"):
        instantiate(node, "norm", Norm, dim=4)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("normlab.norms.local.LayrNorm", "cannot be imported"),
        ("normlab.nroms.LayerNorm", "cannot be imported"),
        ("os.system", "is no Norm"),
        ("normlab.models.layers.initialize", "is no Norm"),
        ("normlab.norms.base.Norm", "is abstract"),
    ],
)
def test_the_class_of_an_options_own_file_must_fit_its_place(target, message):
    with pytest.raises(ValueError, match=rf"norm: '{target}' {message}"):
        instantiate({"_target_": target}, "norm", Norm, dim=4)


def test_optimizers_of_torch_take_their_own_values():
    import torch

    parameters = [torch.nn.Parameter(torch.zeros(2))]
    node = {"option": "sgd", "lr": 0.25, "momentum": 0.5}
    optimizer = instantiate(node, "optim", torch.optim.Optimizer, params=parameters)
    assert isinstance(optimizer, torch.optim.SGD)
    assert optimizer.param_groups[0]["lr"] == 0.25


def test_a_wrong_key_of_an_optimizer_is_named():
    import torch

    parameters = [torch.nn.Parameter(torch.zeros(2))]
    node = {"option": "sgd", "lr": 0.25, "momentun": 0.5}
    with pytest.raises(ValueError, match=r"optim\.momentun does not exist"):
        instantiate(node, "optim", torch.optim.Optimizer, params=parameters)


def test_batch_norm_is_built_from_its_node():
    norm = instantiate(BN, "norm", Norm, dim=5)
    assert type(norm) is BatchNorm and norm.momentum == 0.1 and norm.padding == "exclude"
