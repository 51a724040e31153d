"""Decoding speed: sentences a second through the search of `normlab translate`.

The model has its first values, which say nothing about speed, and sentences come from the
synthetic corpus in batches of like length. Every hypothesis has exactly `length` tokens, so that
every program and every norm does the same work.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from torch import Tensor

from normlab.bench.clock import Clock, Span
from normlab.bench.spread import spread
from normlab.build import build_model, build_task
from normlab.decoding import Hypothesis, SearchSettings
from normlab.models.seq2seq import Seq2Seq
from normlab.models.stacks import CachedDecoding, PrefixDecoding
from normlab.tasks.translation import Translation, TranslationBatch
from normlab.train.runtime import Runtime

_UNLIKELY = -1e4


@contextmanager
def full_length(model: Seq2Seq, eos_id: int) -> Iterator[None]:
    """Let no hypothesis of a model end before the length limit, where search ends it."""
    step = model.decode_step

    def goes_on(ids: Tensor, state: CachedDecoding | PrefixDecoding) -> Tensor:
        logits = step(ids, state)
        logits[:, eos_id] = _UNLIKELY
        return logits

    model.decode_step = goes_on
    try:
        yield
    finally:
        del model.decode_step


@dataclass(kw_only=True)
class Decoder:
    """A model that is being measured, with the batches that it decodes over and over."""

    name: str
    config: Mapping[str, Any]
    model: Seq2Seq
    task: Translation
    batches: Sequence[TranslationBatch]
    settings: SearchSettings
    runtime: Runtime
    spans: list[Span] = field(default_factory=list)

    def decode(self, batch: TranslationBatch) -> list[Hypothesis]:
        """Return the best hypothesis of each sentence of a batch."""
        eos_id = self.task.data.target_tokenizer.eos_id
        with self.runtime.autocast(), full_length(self.model, eos_id):
            return self.task.decode(self.model, batch, self.settings)

    def take(self, clock: Clock) -> Span:
        """Decode all batches once."""
        clock.restart()
        for batch in self.batches:
            self.decode(batch)
        return clock.read()


def start(
    name: str,
    config: Mapping[str, Any],
    runtime: Runtime,
    *,
    batches: int,
    sentences: int,
    length: int,
) -> Decoder:
    """Build a model and the batches it is to decode: `sentences` neighbours by length in each."""
    task = build_task(config)
    if not isinstance(task, Translation):
        raise ValueError("bench decode measures translation: leave task= out")
    model = build_model(config, task).to(runtime.device, runtime.parameter_dtype).eval()
    lengths = task.lengths("valid").sum(1)
    if len(lengths) < batches * sentences:
        raise ValueError(
            f"the corpus has {len(lengths)} sentences to decode, and {batches} batches of "
            f"{sentences} were asked for: lower --batches"
        )
    # Evenly from short to long, as the batches of a test set are.
    places = np.linspace(0, len(lengths) - sentences, batches).astype(int)
    order = lengths.argsort(kind="stable")
    return Decoder(
        name=name,
        config=config,
        model=cast("Seq2Seq", model),  # translation has no other
        task=task,
        batches=[
            task.batch("valid", order[at : at + sentences].tolist()).to(runtime.device)
            for at in places
        ],
        settings=replace(task.test_search, length_factor=0.0, length_offset=length),
        runtime=runtime,
    )


def measure(decoders: Sequence[Decoder], runtime: Runtime, *, rounds: int) -> dict[str, Any]:
    """Let the models take turns and return the figures as plain values."""
    clock = Clock(runtime.device)
    for decoder in decoders:
        decoder.decode(decoder.batches[0])
    for turn in range(rounds):
        for decoder in decoders if turn % 2 == 0 else reversed(decoders):
            decoder.spans.append(decoder.take(clock))
    return {
        "format": "normlab.bench.decode/1",
        "peak_memory_bytes": runtime.peak_memory_bytes(),
        "environment": runtime.environment(),
        "runs": [_figures(decoder, decoders[0]) for decoder in decoders],
    }


def _figures(decoder: Decoder, first: Decoder) -> dict[str, Any]:
    sentences = sum(len(batch.source) for batch in decoder.batches)
    busy = [sentences / span.busy for span in decoder.spans]
    ratios = [b.busy / a.busy for a, b in zip(decoder.spans, first.spans, strict=True)]
    return {
        "name": decoder.name,
        "choices": dict(decoder.config["choices"]),
        "beam": decoder.settings.beam,
        "hypothesis_tokens": decoder.settings.length_offset,
        "sentences": sentences,
        "sentences_per_batch": len(decoder.batches[0].source),
        "sentences_per_second": spread([sentences / span.wall for span in decoder.spans]),
        "sentences_per_busy_second": spread(busy),
        "ratio_to_first": statistics.median(ratios),
    }
