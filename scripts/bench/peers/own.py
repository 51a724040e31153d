"""normlab's training, with its default probes, and its beam search."""

from collections.abc import Iterator, Mapping
from typing import Any

from bench.common import bench_task
from bench.peers.files import config_of, start_decoder
from bench.peers.turns import Turns
from bench.peers.work import arguments
from normlab.training.runtime import Runtime
from normlab.training.speed import StepClock, start


def train(config: Mapping[str, Any], runtime: Runtime) -> None:
    """Train for as long as there are turns."""
    steps = start("normlab", config, runtime, task=bench_task(config))
    clock = StepClock(runtime.device)

    def taken() -> Iterator[int]:
        while True:
            yield steps.take(1, clock)[1]

    turns = Turns(packages=["normlab", "torch"], differs=[])
    for _ in turns.paced(taken(), lambda tokens: {"target_tokens": tokens}):
        pass


def decode(config: Mapping[str, Any], runtime: Runtime) -> None:
    """Decode until there are no more turns."""
    decoder = start_decoder("normlab", config, runtime)
    clock = StepClock(runtime.device)

    def passes() -> Iterator[int]:
        while True:
            decoder.take(clock)
            yield sum(len(batch.source) for batch in decoder.batches)

    turns = Turns(packages=["normlab", "torch"], differs=[])
    for _ in turns.paced(passes(), lambda sentences: {"sentences": sentences}):
        pass


if __name__ == "__main__":
    chosen = arguments("train or decode with normlab", precisions=["fp32", "bf16"])
    (train if chosen.kind == "training" else decode)(
        config_of(chosen.work.model, chosen.precision),
        Runtime.start(device="cpu", precision=chosen.precision, threads=1),
    )
