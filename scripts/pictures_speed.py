"""Time steps of networks of pictures beside plain torch loops: pictures_speed.py FOLDER JSON.

The folder has CIFAR-10; recurrent networks read the 8 x 8 digits pixel by pixel. Both sides have
the same layers, batch and optimizer, on one thread, and take turns. The plain loops have torch's
own modules, channels last where there are convolutions, and pictures that are floats already and
not varied, so they do less. Times are of the processor; a ratio is the median over turns of ours to
the plain one of the same network and norm.
"""

import json
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normlab.bench.clock import Clock
from normlab.bench.spread import spread
from normlab.bench.train import start
from normlab.config import compose, to_dict
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


class LayerNormLstm(nn.Module):
    """The same with torch's layer norm on both products and the cell, as a loop over pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.of_input = nn.Linear(1, 4 * 128, bias=False)
        self.of_hidden = nn.Linear(128, 4 * 128, bias=False)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for width in (512, 512, 128))
        self.classes = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return a logit for each class."""
        inputs = self.norms[0](self.of_input(x.flatten(2).mT))
        hidden = cell = inputs.new_zeros(len(inputs), 128)
        for u in inputs.unbind(1):
            a = u + self.norms[1](self.of_hidden(hidden))
            i, f, g, o = a.chunk(4, 1)
            cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            hidden = o.sigmoid() * self.norms[2](cell).tanh()
        return self.classes(hidden)


@dataclass(frozen=True)
class Network:
    """One network: what `normlab train` is given, and the plain models by norm, None for none."""

    words: tuple[str, ...]
    plain: dict[str, Callable[[], nn.Module] | None]
    sgd: bool = False


def _residual(name: str, blocks: int, norms: dict[str, MakeNorm | None]) -> Network:
    plain = {
        norm: None if make is None else lambda make=make: residual(blocks, make)
        for norm, make in norms.items()
    }
    words = ("task=cifar10", f"model={name}", "optim.weight_decay=5e-4")
    return Network(words, plain, sgd=True)


NETWORKS = {
    "resnet8": _residual(
        "resnet8",
        1,
        {
            "bn": nn.BatchNorm2d,
            "ln": ChannelLayerNorm,
            "gn_sample": lambda width: nn.GroupNorm(8, width),
            "seqn": None,
            "none": lambda _: nn.Identity(),
        },
    ),
    "resnet20": _residual("resnet20", 3, {"bn": nn.BatchNorm2d}),
    "vit": Network(("task=cifar10", "model=vit", "optim=adam"), {"ln": PlainViT, "bn": None}),
    "lstm": Network(
        ("task=digits", "model=lstm", "optim=adam"), {"none": PlainLstm, "ln": LayerNormLstm}
    ),
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
    pictures = torch.randn(2000, *size).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(10, (2000,))

    def batches() -> Iterator[Tensor]:
        while True:
            yield from torch.randperm(2000).split(BATCH)[:-1]

    drawn = batches()

    def step() -> None:
        chosen = next(drawn)
        loss = F.cross_entropy(model(pictures[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def our_step(network: Network, norm: str, folder: str, runtime: Runtime) -> Step:
    """Return a step of a run, without probes."""
    overrides = [
        *network.words,
        f"norm={norm}",
        f"batch_size={BATCH}",
        "precision=fp32",
        "probe=[]",
    ]
    if "task=digits" not in network.words:
        overrides.append(f"data_dir={folder}")
    return start(norm, to_dict(compose(overrides)), runtime).step


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


def timed(name: str, network: Network, folder: str, runtime: Runtime) -> list[dict[str, Any]]:
    """Return what steps of one network took, and their ratios to the plain ones."""
    steps: dict[str, Step] = {}
    for norm, make in network.plain.items():
        if make is not None:
            steps[f"plain {norm}"] = plain_step(network, make)
        steps[norm] = our_step(network, norm, folder, runtime)
    seconds = turns(steps, Clock(runtime.device))
    first = next(iter(network.plain))
    return [
        {
            "network": name,
            "name": side,
            "milliseconds": spread([1000 * each for each in own]),
            "ratio_to_plain": _ratio(own, seconds.get(f"plain {side.removeprefix('plain ')}")),
            f"ratio_to_{first}": _ratio(own, seconds[first]),
        }
        for side, own in seconds.items()
    ]


def _ratio(own: list[float], other: list[float] | None) -> float | None:
    if other is None:
        return None
    return statistics.median(a / b for a, b in zip(own, other, strict=True))


def main(folder: str, place: str) -> None:
    """Take turns network by network, print and write what they took."""
    runtime = Runtime.start(device="cpu", precision="fp32", threads=1)
    runs = [
        run for name, network in NETWORKS.items() for run in timed(name, network, folder, runtime)
    ]
    report = {"format": "normlab.bench.pictures/2", "environment": runtime.environment()}
    Path(place).write_text(json.dumps({**report, "batch": BATCH, "runs": runs}, indent=1) + "\n")
    for run in runs:
        ratio = run["ratio_to_plain"]
        print(
            f"{run['network']:<10}{run['name']:<16}{run['milliseconds']['median']:8.1f} ms"
            f"{'' if ratio is None else f'{ratio:7.2f}'}"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
