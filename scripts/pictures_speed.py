"""Time a step of ResNet-8 beside a plain torch loop: python scripts/pictures_speed.py FOLDER JSON.

The folder has CIFAR-10. Both have the same layers, batch and optimizer, on one thread, and take
turns; the plain loop has torch's own norm modules, channels last, and pictures that are floats
already and not varied, so it does less. Times are of the processor.
"""

import json
import statistics
import sys
from collections.abc import Callable, Iterator
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

BATCH, STEPS, ROUNDS = 128, 1, 5
NORMS: dict[str, Callable[[int], nn.Module]] = {
    "bn": nn.BatchNorm2d,
    "gn_sample": lambda width: nn.GroupNorm(8, width),
    "none": lambda width: nn.Identity(),
}
OURS = ("bn", "gn_sample", "seqn", "ln", "none")


class Block(nn.Module):
    """Two convolutions and a shortcut of every other pixel."""

    def __init__(self, channels: int, filters: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.stride, self.added = 1 if channels == filters else 2, filters - channels
        self.first = nn.Conv2d(channels, filters, 3, self.stride, 1, bias=False)
        self.second = nn.Conv2d(filters, filters, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([norm(filters), norm(filters)])

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of both ways."""
        y = F.relu(self.norms[0](self.first(x)))
        y = self.norms[1](self.second(y))
        if self.added:
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, self.added))
        return F.relu(y + x)


def plain(norm: Callable[[int], nn.Module]) -> Callable[[], object]:
    """Return a step of the plain loop."""
    torch.manual_seed(1)
    stem = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), norm(16), nn.ReLU())
    blocks = [Block(16, 16, norm), Block(16, 32, norm), Block(32, 64, norm)]
    model = nn.Sequential(stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    pictures = torch.randn(2000, 3, 32, 32).contiguous(memory_format=torch.channels_last)
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


def ours(norm: str, folder: str, runtime: Runtime) -> Callable[[], object]:
    """Return a step of a run, without probes."""
    overrides = [f"norm={norm}", "task=cifar10", "model=resnet8", f"data_dir={folder}", "probe=[]"]
    overrides += [f"batch_size={BATCH}", "precision=fp32", "optim.weight_decay=5e-4"]
    return start(norm, to_dict(compose(overrides)), runtime).step


def main(folder: str, place: str) -> None:
    """Take turns, print and write what they took."""
    runtime = Runtime.start(device="cpu", precision="fp32", threads=1)
    steps = {f"plain {name}": plain(norm) for name, norm in NORMS.items()}
    steps |= {name: ours(name, folder, runtime) for name in OURS}
    clock = Clock(runtime.device)
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(-1, ROUNDS):
        for name in steps if turn % 2 else reversed(steps):
            clock.restart()
            for _ in range(STEPS):
                steps[name]()
            if turn >= 0:
                seconds[name].append(clock.read().busy / STEPS)
    first = seconds["plain bn"]
    runs: list[dict[str, Any]] = [
        {
            "name": name,
            "milliseconds": spread([1000 * each for each in own]),
            "ratio_to_plain_bn": statistics.median(a / b for a, b in zip(own, first, strict=True)),
        }
        for name, own in seconds.items()
    ]
    report = {"format": "normlab.bench.pictures/1", "environment": runtime.environment()}
    Path(place).write_text(json.dumps({**report, "batch": BATCH, "runs": runs}, indent=1) + "\n")
    for run in runs:
        print(
            f"{run['name']:<16}{run['milliseconds']['median']:8.1f} ms"
            f"{run['ratio_to_plain_bn']:7.2f}"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
