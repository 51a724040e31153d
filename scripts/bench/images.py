"""Training steps of ResNet-8 beside a plain torch loop, by norm.

Both sides have the same layers, batch and optimizer, on one thread, and take turns. The plain loops
have torch's own modules and images that are floats already, without augmentation, so they do less.
Times are of the processor; a ratio is the median over turns of ours to the plain one.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence

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


NORMS: dict[str, MakeNorm] = {
    "bn": nn.BatchNorm2d,
    "ln": ChannelLayerNorm,
    "none": lambda _: nn.Identity(),
}


def plain_step(make: MakeNorm) -> Step:
    """Return a step of the plain loop."""
    torch.manual_seed(1)
    model = residual(1, make)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    images = torch.randn(2000, 3, 32, 32).contiguous(memory_format=torch.channels_last)
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


def our_step(norm: str, overrides: Sequence[str], runtime: Runtime) -> Step:
    """Return a step of a run, without probes."""
    own = ["task=cifar10", "model=resnet8", "optim.weight_decay=5e-4", "precision=fp32"]
    config = bench_config([*own, f"norm={norm}", f"batch_size={BATCH}", "probe=[]", *overrides])
    return start(norm, config, runtime, task=bench_task(config)).trainer.step


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


def main(argv: list[str]) -> int:
    """Let both sides take turns, print a line per norm and side, write JSON where asked."""
    about = "Training steps of ResNet-8 beside a plain torch loop."
    examples = "examples:\n  python scripts/bench images --json FILE\n"
    arguments = bench_parser("images", about, examples).parse_intermixed_args(argv)
    runtime = Runtime.start(device="cpu", precision="fp32", threads=arguments.threads)
    steps: dict[str, Step] = {}
    for norm, make in NORMS.items():
        steps[f"plain {norm}"] = plain_step(make)
        steps[norm] = our_step(norm, arguments.overrides, runtime)
    seconds = turns(steps, Clock(runtime.device))
    runs = []
    for side, own in seconds.items():
        plain = seconds[f"plain {side.removeprefix('plain ')}"]
        ratio = statistics.median(a / b for a, b in zip(own, plain, strict=True))
        times = spread([1000 * each for each in own])
        runs.append({"name": side, "milliseconds": times, "ratio_to_plain": ratio})
        print(f"{side:<12}{times['median']:8.1f} ms{ratio:7.2f}")
    report = {"format": "normlab.bench.images/1", "environment": runtime.environment()}
    write_json({**report, "batch": BATCH, "runs": runs}, arguments.json)
    return 0
