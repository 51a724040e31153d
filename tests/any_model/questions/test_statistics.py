"""Do running statistics match the data?"""

import pytest
import torch
from torch import Tensor, nn

import normlab
from tests.any_model.pairs import WIDTH


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


def test_padding_is_left_out_of_the_measured_mean_and_variance(net, batch):
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
def test_stale_never_updated_and_non_finite_statistics_are_found(net, batch, spoil, says, verdict):
    spoil(net.bn)
    finding = look(net, batch)
    assert (finding.verdict, finding.module) == (verdict, "bn") and says in finding.answer


def test_recalibration_lowers_the_loss_and_leaves_the_model_unchanged(net, batch):
    net.bn.running_var.mul_(9)
    net.train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    losses = look(net, batch, loss=lambda y, _: (y.square().mean() - 1).abs()).values["loss"]
    assert losses["running"] > 0.5 > 0.1 > losses["recalibrated"]
    assert losses["batch"] == pytest.approx(losses["recalibrated"], abs=0.05)
    assert net.training and net.bn.momentum == 0.1
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_statistics_does_not_apply_without_running_statistics(batch):
    assert look(nn.LayerNorm(6), batch["x"]).why_not == "no norm keeps running statistics"


def test_statistics_does_not_apply_to_a_single_row(net, batch):
    finding = look(net, {name: value[:1] for name, value in batch.items()})
    assert finding.verdict == "does not apply"
    assert "no norm has enough data" in finding.why_not


class WithNorm(nn.Module):
    """A norm with running statistics over `[B, T, D]` or `[B, D, T]`."""

    def __init__(self, norm: nn.Module, first: bool):
        super().__init__()
        self.norm, self.first = norm, first

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.mT).mT if self.first else self.norm(x)


class LastBatchNorm(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.full((width,), 0.9))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.running_mean) * (self.running_var + 1e-5).rsqrt()


@pytest.mark.parametrize("length", [12, WIDTH])
@pytest.mark.parametrize(
    "norm", [LastBatchNorm(WIDTH), normlab.make_norm("bn", WIDTH)], ids=["last", "normlab"]
)
def test_statistics_over_the_last_axis_are_compared(norm, length):
    x = torch.randn(4, length, WIDTH)
    norm.running_var.fill_(0.9)
    for offset, verdict in ((0.0, "fine"), (50.0, "look")):
        model = WithNorm(norm, False)
        report = normlab.inspect(model, x + offset, checks="statistics")
        assert report.findings["statistics"].verdict == verdict


@pytest.mark.parametrize("name", ["brn", "pn", "mabn", "un"])
def test_running_standard_deviations_and_mean_squares_are_compared(name):
    norm, x = normlab.make_norm(name, WIDTH), torch.randn(4, 12, WIDTH)
    buffer = next(b for n, b in norm.named_buffers() if n in ("running_std", "running_square"))
    buffer.fill_(0.9)
    for size, verdict in ((1.0, "fine"), (50.0, "look")):
        report = normlab.inspect(norm, size * x, checks="statistics")
        found = report.findings["statistics"]
        assert (found.verdict, "stale: " in found.answer) == (verdict, size > 1), found


@pytest.mark.parametrize(("size", "verdict"), [(1.0, "fine"), (20.0, "look")])
def test_variances_far_below_eps_are_compared(size, verdict):
    norm, x = nn.BatchNorm1d(WIDTH, eps=1e-5, momentum=None), 1e-3 * torch.randn(8, WIDTH, 12)
    norm(x)
    report = normlab.inspect(norm, size * x, checks="statistics")
    assert report.findings["statistics"].verdict == verdict, report


def test_matching_statistics_are_fine_even_if_the_counter_is_zero():
    norm = nn.InstanceNorm2d(4, track_running_stats=True)
    x = torch.randn(4, 4, 8, 8) * 2 + 3
    norm(x)
    norm.running_mean.copy_(x.mean((0, 2, 3))), norm.running_var.copy_(x.var((0, 2, 3)))
    assert int(norm.num_batches_tracked) == 0
    assert normlab.inspect(norm, x, checks="statistics").findings["statistics"].verdict == "fine"


class OwnNet(nn.Module):
    """A linear layer and normlab's batch norm."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 8)
        self.bn = normlab.make_norm("bn", 8)

    def forward(self, x):
        return self.bn(self.linear(x))


def test_the_loss_of_our_own_batch_norm_is_measured_with_all_three_statistics():
    torch.manual_seed(0)
    net = OwnNet()
    net.bn.running_var.fill_(9.0)
    batches = [torch.randn(4, 12, 6) for _ in range(3)]
    loss = lambda y, _: (y.square().mean() - 1).abs()  # noqa: E731
    report = normlab.inspect(net, batches, checks="statistics", loss=loss)
    losses = report.findings["statistics"].values["loss"]
    assert losses["running"] > 0.5 > 0.1 > losses["recalibrated"]
    assert net.bn.running_var.unique().tolist() == [9.0]
