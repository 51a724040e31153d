import pytest
import torch
from torch import nn

import normlab


class Net(nn.Module):
    """Batch norm after a convolution over tokens; padding may or may not be zeroed before it."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(6, 8, 1)
        self.bn = nn.BatchNorm1d(8)

    def forward(self, x, lengths):
        return self.bn(self.conv(x.transpose(1, 2))).transpose(1, 2)


@pytest.fixture
def batch():
    torch.manual_seed(0)
    x = torch.randn(4, 12, 6)
    lengths = torch.tensor([12, 9, 10, 6])
    x[torch.arange(12) >= lengths[:, None]] = 50.0  # under the padding
    return {"x": x, "lengths": lengths}


@pytest.fixture
def net(batch):
    """Return a net whose running statistics come from real positions only."""
    torch.manual_seed(0)
    net = Net()
    real = torch.arange(12) < batch["lengths"][:, None]
    with torch.no_grad():
        y = net.conv(batch["x"].transpose(1, 2)).transpose(1, 2)[real]
        net.bn.running_mean.copy_(y.mean(0))
        net.bn.running_var.copy_(y.var(0))
    net.bn.num_batches_tracked += 1
    return net


def look(net, batch, **options):
    return normlab.inspect(net, [batch], checks="statistics", **options).findings["statistics"]


def test_statistics_of_real_positions_are_fine_whatever_the_padding(net, batch):
    finding = look(net, batch)
    assert finding.verdict == "fine" and finding.value < 0.6
    _, distance, ratio, _, state = finding.table.rows[0]
    assert distance < 0.1 and ratio == pytest.approx(1, abs=0.05) and not state


@pytest.mark.parametrize(
    ("spoil", "says", "verdict"),
    [
        (lambda bn: bn.running_mean.add_(2 * bn.running_var.sqrt()), "stale: mean 2 sd", "look"),
        (lambda bn: bn.running_var.mul_(3), "variance 0.33-fold", "look"),
        (lambda bn: bn.reset_running_stats(), "never updated", "look"),
        (lambda bn: bn.running_var[0].fill_(torch.nan), "not finite", "broken"),
        (lambda bn: bn.running_var[0].fill_(-1), "not finite", "broken"),
    ],
)
def test_statistics_that_are_not_those_of_the_data_are_found(net, batch, spoil, says, verdict):
    spoil(net.bn)
    finding = look(net, batch)
    assert (finding.verdict, finding.module) == (verdict, "bn") and says in finding.answer


def test_the_loss_says_what_stale_statistics_cost_and_nothing_changes(net, batch):
    net.bn.running_var.mul_(9)
    net.train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    losses = look(net, batch, loss=lambda y, _: (y.square().mean() - 1).abs()).values["loss"]
    assert losses["running"] > 0.5 > 0.1 > losses["recalibrated"]
    assert losses["batch"] == pytest.approx(losses["recalibrated"], abs=0.05)
    assert net.training and net.bn.momentum == 0.1
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_a_model_without_running_statistics_is_told_so(batch):
    assert look(nn.LayerNorm(6), batch["x"]).why_not == "no norm keeps running statistics"


def test_rows_that_normlab_made_up_are_not_compared_which_gives_no_verdict_but_a_reason(net, batch):
    finding = look(net, {name: value[:1] for name, value in batch.items()})
    assert finding.verdict == "does not apply"
    assert "no norm has enough data" in finding.why_not
