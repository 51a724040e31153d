"""normlab's training, through the loop of `normlab train` with its default probes."""

from collections.abc import Iterator

from normlab.bench import train
from normlab.bench.clock import Clock
from normlab.train.runtime import Runtime
from peers.files import config_of
from peers.turns import Turns
from peers.work import arguments


def main() -> None:
    """Train for as long as there are turns."""
    chosen = arguments("train with normlab", precisions=["fp32", "bf16"])
    runtime = Runtime.start(device="cpu", precision=chosen.precision, threads=1)
    config = config_of(chosen.work.model, chosen.precision)
    contender = train.start("normlab", config, runtime)
    clock = Clock(runtime.device)

    def steps() -> Iterator[train.Interval]:
        while True:
            yield contender.take(1, clock)

    turns = Turns(packages=["normlab", "torch"], differs=[])
    for _ in turns.paced(steps(), counts):
        pass


def counts(step: train.Interval) -> dict[str, int]:
    """Return what a step trained on."""
    return {
        "target_tokens": step.target_tokens,
        "positions": step.positions,
        "padding": step.padding,
    }


if __name__ == "__main__":
    main()
