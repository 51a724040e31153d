import pytest
import torch
from torch import nn

import normlab

WIDTH = 16


class Block(nn.Module):
    """A residual block: x + scale * linear(norm(x))."""

    def __init__(self, scale):
        super().__init__()
        self.norm, self.linear, self.scale = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), scale

    def forward(self, x):
        return x + self.scale * self.linear(self.norm(x))


class Net(nn.Module):
    def __init__(self, *scales):
        super().__init__()
        self.layers = nn.ModuleList(map(Block, scales))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def ask(model, name):
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    found = normlab.inspect(model, torch.randn(3, 12, WIDTH), checks=[name]).findings[name]
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    return found


def test_precision_ranks_modules_by_their_quantization_error():
    model = Net(1, 1)
    model.layers[1].linear.weight.data[:, 0] = 1000.0  # int8 rounds all else in each row to 0,
    model.layers[1].norm.weight.data[0] = 0  # and this feature is 0
    found = ask(model, "precision")
    worst = max(found.table.rows, key=lambda row: row[2])
    assert worst[0] == "layers.1.linear" and worst[2] > 10 * found.table.rows[1][2]
    assert 1e-4 < found.value < 0.05 and found.verdict == "fine"


class ByKeyword(Block):
    def forward(self, x):
        return x + self.scale * self.linear(input=self.norm(input=x))


def test_precision_rounds_inputs_that_are_passed_by_keyword():
    model, same = Net(1), Net()
    same.layers.append(ByKeyword(1))
    same.load_state_dict(model.state_dict())
    torch.manual_seed(1)
    by_position = ask(model, "precision")
    torch.manual_seed(1)
    assert ask(same, "precision").table.rows == by_position.table.rows


def test_a_layer_that_adds_0_has_a_worth_of_0():
    found = ask(Net(1, 0), "worth")
    moved = {(kind, name): value for kind, name, value in found.table.rows}
    assert moved["layer", "layers.1"] == moved["norm", "layers.1.norm"] == 0
    assert moved["layer", "layers.0"] > 0.1 and moved["norm", "layers.0.norm"] > 0


@pytest.mark.parametrize(("last", "verdict"), [(1.0, "fine"), (1e-4, "look")])
def test_a_gradient_that_vanishes_over_depth_is_worth_a_look(last, verdict):
    assert ask(Net(1.0, last), "depth").verdict == verdict


def test_an_outlier_channel_is_worth_a_look():
    model = Net(0, 1)
    model.layers[1].linear.bias.data[3] = 1e5
    found = ask(model, "channels")
    assert found.verdict == "look" and found.value > 1000
    assert found.table.rows[1][0] == "layers.1" and found.table.rows[1][3] > 9e4
    assert ask(Net(0, 1), "channels").verdict == "fine"


def test_the_channel_axis_follows_from_the_shape_of_the_mask():
    model = nn.Sequential(nn.Sequential(nn.Conv1d(6, 6, 1)))
    model[0][0].weight.data[2] = 0
    mask = torch.ones(2, 40).long()
    report = normlab.inspect(model, torch.randn(2, 6, 40), mask=mask, checks="channels")
    assert report.findings["channels"].table.rows[0][2] == pytest.approx(1 / 6)


def test_sinks_are_measured_only_for_transformers_models():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=50, n_embd=16, n_layer=2, n_head=2)
    model = transformers.GPT2Model(config)
    batch = {"input_ids": torch.randint(0, 50, (2, 20)), "use_cache": False}
    found = normlab.inspect(model, batch, checks="sinks").findings["sinks"]
    assert found.value == 0 and len(found.table.rows) == 4
    assert model.config._attn_implementation != "eager"
    assert ask(Net(1), "sinks").why_not
