"""Training steps of networks of images beside plain torch loops.

Both sides have the same layers, batch and optimizer, on one thread, and take turns. The plain loops
have torch's own modules and images that are floats already, without augmentation, so they do less.
Times are of the processor; a ratio is the median over turns of ours to the plain one.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.common import bench_config, bench_parser, bench_task, write_json
from normlab.bench.speed import Clock, spread, start
from normlab.train.runtime import Runtime

BATCH, ROUNDS = 128, 9
MakeNorm = Callable[[int], nn.Module]
Step = Callable[[], object]


class ChannelLayerNorm(nn.LayerNorm):
    """Layer norm over the channels of each position of `[B, C, H, W]`."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the input, normalized."""
        return super().forward(input.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Block(nn.Module):
    """Two convolutions and a shortcut, of every other pixel where the shape changes."""

    def __init__(self, channels: int, filters: int, norm: MakeNorm) -> None:
        super().__init__()
        stride = 1 if channels == filters else 2
        self.added = filters - channels
        self.first = nn.Conv2d(channels, filters, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(filters, filters, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([norm(filters), norm(filters)])

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of both ways."""
        y = F.relu(self.norms[0](self.first(x)))
        y = self.norms[1](self.second(y))
        if self.added:
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, self.added))
        return F.relu(y + x)


def residual(blocks: int, norm: MakeNorm) -> nn.Module:
    """Return a residual network of three stages with so many blocks each."""
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), norm(16), nn.ReLU()]
    channels = 16
    for filters in (16, 32, 64):
        for _ in range(blocks):
            layers.append(Block(channels, filters, norm))
            channels = filters
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    return nn.Sequential(*layers).to(memory_format=torch.channels_last)


class PlainViT(nn.Module):
    """Patches of 4 x 4, four layers of torch's encoder in pre-norm, the mean, classes."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 128, 4, 4)
        self.positions = nn.Parameter(torch.randn(1, 64, 128) * 0.02)
        self.dropout = nn.Dropout(0.1)
        layer = nn.TransformerEncoderLayer(
            *(128, 4, 512, 0.1), activation="gelu", batch_first=True, norm_first=True
        )
        layer.self_attn.dropout = 0.0
        layer.dropout = nn.Identity()  # pyright: ignore[reportAttributeAccessIssue]
        self.encoder = nn.TransformerEncoder(
            layer, 4, norm=nn.LayerNorm(128), enable_nested_tensor=False
        )
        self.classes = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return a logit for each class."""
        patches = self.patches(x).flatten(2).mT
        return self.classes(self.encoder(self.dropout(patches + self.positions)).mean(1))


class PlainLstm(nn.Module):
    """torch's LSTM over the pixels, and classes of its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(1, 128, batch_first=True)
        self.classes = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return a logit for each class."""
        return self.classes(self.lstm(x.flatten(2).mT)[0][:, -1])


@dataclass(frozen=True)
class Network:
    """One network: what `normlab train` is given, and the plain models by norm, None for none."""

    words: tuple[str, ...]
    plain: dict[str, Callable[[], nn.Module] | None]
    sgd: bool = False


_NORMS: dict[str, MakeNorm] = {
    "bn": nn.BatchNorm2d,
    "ln": ChannelLayerNorm,
    "none": lambda _: nn.Identity(),
}
NETWORKS = {
    "resnet8": Network(
        ("task=cifar10", "model=resnet8", "optim.weight_decay=5e-4"),
        {name: lambda make=make: residual(1, make) for name, make in _NORMS.items()},
        sgd=True,
    ),
    "vit": Network(("task=cifar10", "model=vit", "optim=adam"), {"ln": PlainViT, "bn": None}),
    "lstm": Network(("task=digits", "model=lstm", "optim=adam"), {"none": PlainLstm, "ln": None}),
}


def plain_step(network: Network, make: Callable[[], nn.Module]) -> Step:
    """Return a step of the plain loop."""
    torch.manual_seed(1)
    model = make()
    if network.sgd:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    else:
        optimizer = torch.optim.Adam(model.parameters())
    size = (1, 8, 8) if "task=digits" in network.words else (3, 32, 32)
    images = torch.randn(2000, *size).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(10, (2000,))

    def batches() -> Iterator[Tensor]:
        while True:
            yield from torch.randperm(2000).split(BATCH)[:-1]

    drawn = batches()

    def step() -> None:
        chosen = next(drawn)
        loss = F.cross_entropy(model(images[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def our_step(network: Network, norm: str, overrides: Sequence[str], runtime: Runtime) -> Step:
    """Return a step of a run, without probes."""
    own = [f"norm={norm}", f"batch_size={BATCH}", "precision=fp32", "probe=[]"]
    config = bench_config([*network.words, *own, *overrides])
    return start(norm, config, runtime, task=bench_task(config)).step


def turns(steps: dict[str, Step], clock: Clock) -> dict[str, list[float]]:
    """Return the seconds of steps that take turns, the order turned round each time."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(-1, ROUNDS):
        for name in steps if turn % 2 else reversed(steps):
            clock.restart()
            steps[name]()
            if turn >= 0:
                seconds[name].append(clock.read().busy)
    return seconds


def timed(
    name: str, network: Network, overrides: Sequence[str], runtime: Runtime
) -> list[dict[str, Any]]:
    """Return the times of one network's steps, and their ratios to the plain ones."""
    steps: dict[str, Step] = {}
    for norm, make in network.plain.items():
        if make is not None:
            steps[f"plain {norm}"] = plain_step(network, make)
        steps[norm] = our_step(network, norm, overrides, runtime)
    seconds = turns(steps, Clock(runtime.device))
    found = []
    for side, own in seconds.items():
        plain = seconds.get(f"plain {side.removeprefix('plain ')}")
        ratio = plain and statistics.median(a / b for a, b in zip(own, plain, strict=True))
        times = spread([1000 * each for each in own])
        row = {"network": name, "name": side, "milliseconds": times, "ratio_to_plain": ratio}
        found.append(row)
    return found


def main(argv: list[str]) -> int:
    """Take turns network by network, print a line per side, write JSON where asked."""
    about = "Training steps of networks of images beside plain torch loops."
    parser = bench_parser("images", about, "examples:\n  python scripts/bench images --json FILE\n")
    parser.add_argument("--networks", default=",".join(NETWORKS), help="default: %(default)s")
    arguments = parser.parse_intermixed_args(argv)
    runtime = Runtime.start(device="cpu", precision="fp32", threads=arguments.threads)
    runs = []
    for name in arguments.networks.split(","):
        if name not in NETWORKS:
            raise ValueError(f"no network {name!r}: there are {', '.join(NETWORKS)}")
        runs += timed(name, NETWORKS[name], arguments.overrides, runtime)
    for run in runs:
        ratio = run["ratio_to_plain"]
        print(
            f"{run['network']:<10}{run['name']:<16}{run['milliseconds']['median']:8.1f} ms"
            f"{'' if ratio is None else f'{ratio:7.2f}'}"
        )
    report = {"format": "normlab.bench.images/1", "environment": runtime.environment()}
    write_json({**report, "batch": BATCH, "runs": runs}, arguments.json)
    return 0
