"""What it takes to get from raw text to batches: time and memory, stage by stage.

The cache of prepared data is put aside for an empty one, so that the work is really done.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from normlab.build import build_task
from normlab.data.prepare import prepare_translation
from normlab.distributed import Shard
from normlab.tasks.translation import Translation
from normlab.train.runtime import Runtime

_BATCHES = 300


def measure(config: Mapping[str, Any]) -> dict[str, Any]:
    """Read a corpus, prepare it, open it again and draw batches; return the figures.

    Raises ValueError for a task other than translation.
    """
    task = build_task(config)
    if not isinstance(task, Translation):
        raise ValueError("bench data measures translation: give task=translation and data_dir")
    runtime = Runtime.start(device="cpu", precision="fp32", threads=1)
    stages = _Stages(runtime)
    before = runtime.peak_memory_bytes()
    with TemporaryDirectory() as folder:

        def prepare() -> Any:
            return prepare_translation(
                task.corpus,
                vocab_size=task.vocab_size,
                joint=task.joint_vocabulary,
                max_length=task.max_length,
                cache=Path(folder),
            )

        stages.take("read the text", task.corpus.splits)
        stages.take("vocabulary, ids, statistics", prepare)
        task.data = stages.take("open what is prepared", prepare)
        stream = stages.take("the first batch", lambda: _first(task))
        seconds = -time.process_time()
        tokens = sum(next(stream).tokens for _ in range(_BATCHES))
        seconds += time.process_time()
        description = task.data.description
    return {
        "format": "normlab.bench.data/1",
        "environment": runtime.environment(),
        "label": task.corpus.label,
        "pairs": description["sizes"]["train"],
        "tokens": sum(description["tokens"]["train"].values()),
        "memory_before_bytes": before,
        "stages": stages.found,
        "tokens_per_second": tokens / seconds,
    }


def _first(task: Translation) -> Any:
    stream = task.train_batches(Shard(0, 1), 1)
    next(stream)
    return stream


class _Stages:
    """Times one call after the other."""

    def __init__(self, runtime: Runtime):
        self._runtime = runtime
        self.found: list[dict[str, Any]] = []

    def take(self, name: str, call: Any) -> Any:
        wall, busy = time.perf_counter(), time.process_time()
        result = call()
        self.found.append(
            {
                "name": name,
                "seconds": time.perf_counter() - wall,
                "processor_seconds": time.process_time() - busy,
                "peak_memory_bytes": self._runtime.peak_memory_bytes(),
            }
        )
        return result
