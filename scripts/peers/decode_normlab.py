"""normlab's beam search, the one of `normlab translate`."""

from collections.abc import Iterator

from normlab.bench.clock import Clock
from normlab.train.runtime import Runtime
from peers.files import config_of, start_decoder
from peers.turns import Turns
from peers.work import arguments


def main() -> None:
    """Decode for as long as there are turns."""
    chosen = arguments("decode with normlab", precisions=["fp32", "bf16"])
    runtime = Runtime.start(device="cpu", precision=chosen.precision, threads=1)
    decoder = start_decoder("normlab", config_of(chosen.work.model, chosen.precision), runtime)
    for batch in decoder.batches:
        lengths = {len(found.tokens) for found in decoder.decode(batch)}
        assert lengths == {chosen.work.length - 1}, lengths  # the last step is the end mark
    clock = Clock(runtime.device)

    def passes() -> Iterator[int]:
        while True:
            decoder.take(clock)
            yield sum(len(batch.source) for batch in decoder.batches)

    turns = Turns(packages=["normlab", "torch"], differs=[])
    for _ in turns.paced(passes(), lambda sentences: {"sentences": sentences}):
        pass


if __name__ == "__main__":
    main()
