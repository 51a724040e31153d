"""Decoding speed: sentences a second through the search of `normlab translate`.

The model has its first values, which say nothing about speed, and sentences come from the
synthetic corpus in batches of like length. Every hypothesis has exactly `length` tokens, so that
every program and every norm does the same work.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import Tensor

from normlab.bench.clock import Clock, Span
from normlab.bench.spread import spread
from normlab.build import build_model, build_task
from normlab.decoding import Hypothesis, SearchSettings
from normlab.models.stacks import CachedDecoding, PrefixDecoding
from normlab.tasks.translation import Translation, TranslationBatch
from normlab.train.runtime import Runtime


class ExactLength:
    """A model whose hypotheses do not end before the length limit, where search ends them."""

    def __init__(self, model: Any, eos_id: int):
        self._model, self._eos_id = model, eos_id
        self.decoder, self.encode = model.decoder, model.encode
        self.start_decoding = model.start_decoding

    def decode_step(self, ids: Tensor, state: CachedDecoding | PrefixDecoding) -> Tensor:
        """Return the model's logits, the end of sentence being unlikely."""
        logits = self._model.decode_step(ids, state)
        logits[:, self._eos_id] = -1e4
        return logits


@dataclass(kw_only=True)
class Decoder:
    """A model that is being measured, with the batches that it decodes over and over."""

    name: str
    config: Mapping[str, Any]
    model: ExactLength
    task: Translation
    batches: Sequence[TranslationBatch]
    settings: SearchSettings
    runtime: Runtime
    spans: list[Span] = field(default_factory=list)

    def decode(self, batch: TranslationBatch) -> list[Hypothesis]:
        """Return the best hypothesis of each sentence of a batch."""
        with self.runtime.autocast():
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
    eos_id = task.data.target_tokenizer.eos_id
    return Decoder(
        name=name,
        config=config,
        model=ExactLength(model, eos_id),
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
