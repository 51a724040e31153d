"""Sentences per second of beam search, by norm.

The model is untrained, which does not change the speed. Every hypothesis has exactly `length`
tokens, so that every program and every norm does the same work.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from torch import Tensor

from bench.common import (
    bench_config,
    bench_parser,
    bench_task,
    machine,
    require_positive,
    spread_cells,
    start_runtime,
    write_json,
)
from normlab.errors import UserError
from normlab.models.base import Decoding
from normlab.models.decoding import Hypothesis, SearchSettings
from normlab.models.seq2seq import Seq2Seq
from normlab.reports.legend import Note, print_legend
from normlab.tasks.translation import Translation, TranslationBatch
from normlab.terminal import print_table
from normlab.training.build import build_model
from normlab.training.runtime import Runtime
from normlab.training.speed import Span, StepClock, spread

_EXAMPLES = """examples:
  python scripts/bench decode                               beam 5, 32 sentences, 31 tokens each
  python scripts/bench decode --norms ln,bn,none
  python scripts/bench decode task.test_search.beam=1 model=iwslt
"""


@contextmanager
def full_length(model: Seq2Seq, eos_id: int) -> Iterator[None]:
    """Keep every hypothesis of a model from ending before the length limit."""
    step = model.decode_step

    def endless(ids: Tensor, state: Decoding) -> Tensor:
        logits = step(ids, state)
        logits[:, eos_id] = -1e4
        return logits

    model.decode_step = endless
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

    def take(self, clock: StepClock) -> Span:
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
    pairs: int | None = None,
) -> Decoder:
    """Build a model and the batches to decode, each of `sentences` sentences of similar length."""
    task = bench_task(config, pairs=pairs)
    if not isinstance(task, Translation):
        raise UserError("decode measures translation: leave task= out")
    model = build_model(config, task).to(runtime.device, runtime.parameter_dtype).eval()
    lengths = task.lengths("valid").sum(1)
    if len(lengths) < batches * sentences:
        raise UserError(
            f"the corpus has {len(lengths)} sentences to decode, and {batches} batches of "
            f"{sentences} were asked for: lower --batches"
        )
    # Evenly spaced from short to long, like the batches of a test set.
    places = np.linspace(0, len(lengths) - sentences, batches).astype(int)
    order = lengths.argsort(kind="stable")
    return Decoder(
        name=name,
        config=config,
        model=cast("Seq2Seq", model),
        task=task,
        batches=[
            task.batch("valid", order[at : at + sentences].tolist()).to(runtime.device)
            for at in places
        ],
        settings=replace(task.test_search, length_factor=0.0, length_offset=length),
        runtime=runtime,
    )


def main(argv: list[str]) -> int:
    """Time models in turns and print a table; with --json, also write a report."""
    parser = bench_parser("decode", "Sentences per second of beam search, by norm.", _EXAMPLES)
    parser.add_argument("--norms", help="norms to compare, such as ln,bn,rms")
    parser.add_argument("--batches", type=int, default=6, help="batches per round; default: 6")
    parser.add_argument("--sentences", type=int, default=32, help="batch size; default: 32")
    parser.add_argument("--length", type=int, default=31, help="tokens per hypothesis; default: 31")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    arguments = parser.parse_intermixed_args(argv)
    require_positive(arguments, "threads", "batches", "sentences", "length", "rounds")
    names = [f"norm={name}" for name in (arguments.norms or "").split(",") if name]
    configs = [bench_config([*arguments.overrides, name]) for name in names]
    configs = configs or [bench_config(arguments.overrides)]
    runtime = start_runtime(configs[0], arguments.threads)
    sizes = {name: getattr(arguments, name) for name in ("batches", "sentences", "length")}
    decoders = [start(config["choices"]["norm"], config, runtime, **sizes) for config in configs]
    clock = StepClock(runtime.device)
    for decoder in decoders:
        decoder.decode(decoder.batches[0])
    for turn in range(arguments.rounds):
        for decoder in decoders if turn % 2 == 0 else reversed(decoders):
            decoder.spans.append(decoder.take(clock))
    report = {
        "format": "normlab.bench.decode/1",
        "peak_memory_bytes": runtime.peak_memory_bytes(),
        "environment": runtime.environment(),
        "overrides": arguments.overrides,
        "runs": [_figures(decoder, decoders[0]) for decoder in decoders],
    }
    show(report, notes=arguments.notes)
    write_json(report, arguments.json)
    return 0


def _figures(decoder: Decoder, first: Decoder) -> dict[str, Any]:
    sentences = sum(len(batch.source) for batch in decoder.batches)
    ratios = [b.busy / a.busy for a, b in zip(decoder.spans, first.spans, strict=True)]
    return {
        "name": decoder.name,
        "choices": dict(decoder.config["choices"]),
        "beam": decoder.settings.beam,
        "hypothesis_tokens": decoder.settings.length_offset,
        "sentences": sentences,
        "sentences_per_batch": len(decoder.batches[0].source),
        "sentences_per_second": spread([sentences / span.wall for span in decoder.spans]),
        "sentences_per_busy_second": spread([sentences / span.busy for span in decoder.spans]),
        "ratio_to_first": statistics.median(ratios),
    }


def show(report: Mapping[str, Any], *, notes: bool) -> None:
    """Print a report; `notes` prints all notes in full."""
    rows = [
        [
            run["name"],
            *spread_cells(run["sentences_per_second"], run["sentences_per_busy_second"], ".1f"),
            f"{run['ratio_to_first']:.3f}",
        ]
        for run in report["runs"]
    ]
    run = report["runs"][0]
    legend = [
        machine(report["environment"]),
        f"beam {run['beam']}, batches of {run['sentences_per_batch']} sentences, every hypothesis "
        f"{run['hypothesis_tokens']} tokens; median of {run['sentences_per_second']['n']} rounds "
        f"of {run['sentences']} sentences",
        f"memory {report['peak_memory_bytes'] / 2**30:.2f} GiB at most",
    ]
    columns = ["run", "sentences/s", "range", "sentences/busy s", "to first"]
    print_table(columns, rows, numeric=columns[1:])
    print_legend([*map(Note.short, legend)], whole=notes)
