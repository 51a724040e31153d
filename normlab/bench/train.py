"""Training speed: tokens a second through the very loop of `normlab train`.

Several runs are kept side by side in one process and take turns, an interval each, with the peak
of the machine measured before every turn: what changes with time hits all of them alike, so their
ratios mean more than their figures.
"""

import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from normlab.bench.clock import Clock, Span, seconds_since_process_start
from normlab.bench.peak import Peak, ProductShape, model_shapes, weight_shapes
from normlab.bench.spread import spread
from normlab.build import (
    build_evaluator,
    build_model,
    build_optimizer,
    build_task,
    make_fast,
)
from normlab.distributed import sum_scalars
from normlab.instantiate import instantiate
from normlab.norms.model import ModelNorms
from normlab.probes.base import Probe, ProbeGroup
from normlab.tasks.base import BatchStream, Task
from normlab.tasks.documents import DocumentTask
from normlab.tasks.pictures import Classification
from normlab.tasks.translation import Translation
from normlab.train.budget import Budget
from normlab.train.checkpoint import Checkpoints
from normlab.train.loop import LoopSettings, Trainer
from normlab.train.runtime import Runtime
from normlab.train.schedule import Schedule
from normlab.train.sinks.base import SinkGroup

_NEVER = 1 << 62
_ROWS = 2048  # of the products by which the machine's peak is measured, where no batch says


def useful_flop(
    config: Mapping[str, Any], *, source_per_target: float, predicted: float = 1.0, vocab: int
) -> float:
    """Return the FLOP a target token is worth, with its share of the source and the gradients.

    6 (N_enc S / T + N_dec + P V d): two a weight in the forward pass and four in the backward one,
    over the weights of the products. Of a model of one stream all tokens are target tokens, of
    which a part P is `predicted`. Attention's own products and padding do not count.
    """
    model = config["model"]
    dim, ffn_dim = model["dim"], model["ffn_dim"]
    layer = 4 * dim * dim + 2 * dim * ffn_dim
    if "num_layers" in model:
        return 6 * (model["num_layers"] * layer + predicted * vocab * dim)
    encoder = model["encoder_layers"] * layer
    decoder = model["decoder_layers"] * (layer + 4 * dim * dim)
    return 6 * (encoder * source_per_target + decoder + vocab * dim)


def counted_flop(trainer: Trainer, runtime: Runtime) -> float:
    """Return the FLOP a unit of a task is worth, as torch counts those of a forward pass, thrice.

    For models to which `useful_flop` does not apply: convolutions, recurrences, patches.
    """
    task, model = trainer.task, trainer.model
    batch = task.batch("valid", range(min(8, len(task.lengths("valid"))))).to(runtime.device)
    was_training = model.training
    with torch.no_grad(), runtime.autocast(), FlopCounterMode(display=False) as counter:
        task.losses(model.eval(), batch)
    model.train(was_training)
    return 3 * counter.get_total_flops() / batch.tokens


@dataclass(frozen=True)
class Interval:
    """What one turn of a run did."""

    time: Span
    steps: int
    target_tokens: int
    source_tokens: int
    positions: int
    padding: int = 0
    predicted: int = 0


@dataclass(kw_only=True)
class Measured:
    """What is known of one of the runs that are measured.

    `unit` is what its steps are counted in. `flop` a unit and the `shapes` of its products are
    given where `useful_flop` and `model_shapes` do not apply.
    """

    name: str
    config: Mapping[str, Any]
    vocab: int
    unit: str = "tokens"
    flop: float | None = None
    shapes: Sequence[ProductShape] = ()
    first_step_seconds: float | None = None
    intervals: list[Interval] = field(default_factory=list)

    def take(self, steps: int, clock: Clock) -> Interval:
        """Take steps and return what they were."""
        raise NotImplementedError

    def step(self) -> object:
        """Take one step."""
        raise NotImplementedError


@dataclass(kw_only=True)
class Contender(Measured):
    """A run that is being measured."""

    trainer: Trainer
    stream: "CountingStream"

    def take(self, steps: int, clock: Clock) -> Interval:
        """Take steps and return what they were."""
        return counted_steps(self.step, self.stream, steps, clock)

    def step(self) -> object:
        """Take one step."""
        return self.trainer.step()


class CountingStream(Iterator[Any]):
    """A batch stream that adds up what passes through it."""

    def __init__(self, inner: BatchStream):
        self._inner = inner
        self.totals: Counter[str] = Counter()

    @property
    def epochs(self) -> float:
        """Return the epochs of the stream inside."""
        return self._inner.epochs

    def __next__(self) -> Any:
        batch = next(self._inner)
        real = batch.positions - batch.padding
        self.totals.update(
            target_tokens=batch.tokens,
            source_tokens=real - batch.tokens,
            positions=batch.positions,
            padding=batch.padding,
            predicted=max(batch.counts.values()),
        )
        return batch

    def state_dict(self) -> dict[str, Any]:
        """Return the place of the stream inside."""
        return self._inner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Move the stream inside."""
        self._inner.load_state_dict(state)


def counted_steps(
    step: Callable[[], object], stream: CountingStream, steps: int, clock: Clock
) -> Interval:
    """Take steps that draw from `stream` and return what they were on all processes together."""
    before = Counter(stream.totals)
    clock.restart()
    for _ in range(steps):
        step()
    span = clock.read()
    counted = {name: total - before[name] for name, total in stream.totals.items()}
    everywhere = sum_scalars([float(total) for total in counted.values()])
    summed = dict(zip(counted, map(int, everywhere), strict=True))
    return Interval(time=span, steps=steps, **summed)


def start(name: str, config: Mapping[str, Any], runtime: Runtime) -> Contender:
    """Build a run whose data is prepared, and take its first step."""
    age = seconds_since_process_start()
    build_task(config).describe()  # prepared here if it is not yet, which is not to be measured
    clock = Clock(runtime.device)
    task = build_task(config)  # finds the prepared data, as any later run does
    trainer = _trainer(config, task, runtime)
    stream = CountingStream(trainer.stream)
    trainer.stream = stream
    pictures = isinstance(task, Classification)
    by_formula = "ffn_dim" in config["model"] and not pictures
    flop = None if by_formula else counted_flop(trainer, runtime)
    shapes = [] if by_formula else weight_shapes(trainer.model, rows=_ROWS)
    trainer.start()
    trainer.step()
    took = clock.read().wall
    return Contender(
        name=name,
        config=config,
        vocab=_vocabulary(task),
        unit="pictures" if pictures else "tokens",
        flop=flop,
        shapes=shapes,
        first_step_seconds=None if age is None else age + took,
        trainer=trainer,
        stream=stream,
    )


def _vocabulary(task: Task) -> int:
    """Return the entries that a token, or the class of a picture, is predicted from."""
    if isinstance(task, Translation):
        return len(task.data.target_tokenizer)
    if isinstance(task, Classification):
        return len(task.source.classes)
    assert isinstance(task, DocumentTask), "there is no other kind of task"
    return len(task.data.tokenizer)


def _trainer(config: Mapping[str, Any], task: Task, runtime: Runtime) -> Trainer:
    torch.manual_seed(config["seed"])
    model = build_model(config, task).to(runtime.device, runtime.parameter_dtype)
    if config["observe"]["fast"]:
        make_fast(model, task, runtime.device)
    return Trainer(
        task=task,
        model=model,
        optimizer=build_optimizer(config, model),
        schedule=instantiate(config["schedule"], "schedule", Schedule),
        settings=LoopSettings(
            budget=Budget(steps=_NEVER),
            accumulate=config["accumulate"],
            clip_norm=config["clip_norm"],
            divergence_factor=float("inf"),
            validate_every=_NEVER,
            select_by="loss",
            patience=None,
            best_by=(),
            average=0,
            log_every=config["observe"]["log_every"],
            checkpoint_every=_NEVER,
            targets={},
            stamp={},
        ),
        runtime=runtime,
        evaluator=build_evaluator(config, task, runtime),
        norms=ModelNorms(model),
        probes=ProbeGroup(
            {
                name: instantiate(node, f"observe.probe.{name}", Probe)
                for name, node in config["observe"]["probe"].items()
            }
        ),
        sinks=SinkGroup({}),
        checkpoints=Checkpoints(Path(gettempdir()), writes=False),
        seed=config["seed"],
    )


def measure(
    contenders: Sequence[Measured],
    runtime: Runtime,
    *,
    intervals: int,
    steps: int,
    warmup: int,
) -> dict[str, Any]:
    """Warm every run up, let them take turns, and return the report (see `report`)."""
    clock = Clock(runtime.device)
    first = contenders[0]
    peak = Peak(
        list(first.shapes) or _formula_shapes(first),
        device=runtime.device,
        dtype=torch.bfloat16 if runtime.precision == "bf16" else runtime.parameter_dtype,
    )
    for contender in contenders:
        contender.take(warmup, clock)
    for turn in range(intervals):
        # Every other turn goes backwards, so that nobody always runs after the same one.
        for contender in contenders if turn % 2 == 0 else reversed(contenders):
            peak.measure()
            contender.intervals.append(contender.take(steps, clock))
    return report(contenders, peak.rates, runtime)


def _formula_shapes(of: Measured) -> list[ProductShape]:
    model = of.config["model"]
    return model_shapes(
        tokens=of.config["max_tokens"] or _ROWS,
        dim=model["dim"],
        ffn_dim=model["ffn_dim"],
        vocab=of.vocab,
    )


def report(
    contenders: Sequence[Measured], peak_rates: Sequence[float], runtime: Runtime
) -> dict[str, Any]:
    """Return the figures of all runs as plain values."""
    peak = statistics.median(peak_rates) * runtime.world.size
    runs = [_figures(contender, peak) for contender in contenders]
    for run in runs:
        pairs = zip(run["busy_rates"], runs[0]["busy_rates"], strict=True)
        run["ratio_to_first"] = statistics.median(own / first for own, first in pairs)
    return {
        "format": "normlab.bench.train/1",
        "peak_gflop_per_second": spread([rate / 1e9 for rate in peak_rates]),
        "peak_memory_bytes": runtime.peak_memory_bytes(),
        "start_to_first_step_seconds": contenders[0].first_step_seconds,
        "environment": runtime.environment(),
        "runs": runs,
    }


def _figures(contender: Measured, peak: float) -> dict[str, Any]:
    turns = contender.intervals
    target = sum(turn.target_tokens for turn in turns)
    source = sum(turn.source_tokens for turn in turns)
    flop = contender.flop
    if flop is None:
        flop = useful_flop(
            contender.config,
            source_per_target=source / target,
            predicted=sum(turn.predicted for turn in turns) / target,
            vocab=contender.vocab,
        )
    wall = [turn.target_tokens / turn.time.wall for turn in turns]
    busy = [turn.target_tokens / turn.time.busy for turn in turns]
    padding = sum(turn.padding for turn in turns) / sum(turn.positions for turn in turns)
    return {
        "name": contender.name,
        "choices": dict(contender.config["choices"]),
        "unit": contender.unit,
        "tokens_per_second": spread(wall),
        "tokens_per_busy_second": spread(busy),
        "busy_rates": busy,
        "share_of_peak": statistics.median(busy) * flop / peak,
        "useful_mflop_per_token": flop / 1e6,
        "padding_share": padding,
        "target_tokens_per_step": target / sum(turn.steps for turn in turns),
        "steps_per_interval": turns[0].steps,
    }
