"""A model under inspection: its task, its recorded activations, and how much values change.

No other file of `normlab.inspection` hooks into the modules of our models.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from normlab.any_model.movement import over, percent, rms
from normlab.config.compose import compose
from normlab.config.plain import to_dict
from normlab.errors import UserError
from normlab.inspection.question import Answer, Answers, Question, questions
from normlab.models.attention import AttentionCore, visible_keys
from normlab.models.base import stacks
from normlab.norms.running import normalized_by, running_norms
from normlab.placements.base import Residual
from normlab.probes.sites import real_values, sites
from normlab.records.pairs import Summary
from normlab.records.record import RunRecord, plain
from normlab.reports.arrangement import arranged
from normlab.reports.runs import found_run
from normlab.tasks.base import Task
from normlab.tasks.batch import Batch
from normlab.training.build import build_model, build_task, calibrate_model
from normlab.training.loaded import load_run
from normlab.training.runtime import Runtime, torch_settings_kept
from normlab.training.speed import runtime_of

FORMAT = "normlab.inspect/1"
MODES = ("training", "eval")
ROUNDING = 1e-5
"""The largest relative change that float32 rounding can cause in a model of tens of layers."""


@dataclass(frozen=True)
class Subject:
    """A model at initialization or at the end of a run, with its task.

    The model is in eval mode and computes in the dtype of its weights: float32, or float64 if the
    config sets fp64. `step` is 0 at initialization.
    """

    config: dict[str, Any]
    task: Task
    model: nn.Module
    runtime: Runtime
    run_id: str | None = None
    step: int = 0

    @property
    def seed(self) -> int:
        """The seed of the run, which also seeds the questions' random draws."""
        return int(self.config["seed"])

    @property
    def keeps_statistics(self) -> bool:
        """Whether any norm uses running statistics in eval."""
        return any(norm.eval_stats != "batch" for norm in running_norms(self.model))

    def number(self, split: str) -> int:
        """Return the number of examples in a split."""
        return len(self.task.lengths(split))

    def batch(self, split: str, indices: Sequence[int], *, padding: float = 0.0) -> Batch:
        """Return a batch of examples on the device, with at least this share of padding."""
        return self.task.batch(split, indices, padding=padding).to(self.runtime.device)

    def losses(self, batch: Batch, model: nn.Module | None = None) -> dict[str, Tensor]:
        """Return the summed losses of a batch, computed with `model` if one is given."""
        return self.task.losses(model or self.model, batch)

    def generator(self, question: str) -> np.random.Generator:
        """Return a random generator for one question, unaffected by other questions."""
        return np.random.default_rng([self.seed, *question.encode()])


def subject_of_config(overrides: Sequence[str]) -> Subject:
    """Compose a config like `normlab train`, and return its model at initialization."""
    return subject_of(to_dict(compose(overrides)))


def subject_of(config: dict[str, Any]) -> Subject:
    """Return a plain config's model at initialization."""
    runtime, task = runtime_of(config), build_task(config)
    model = build_model(config, task).to(runtime.device, runtime.parameter_dtype)
    calibrate_model(config, model, task, runtime)
    return Subject(config, task, model.eval(), runtime)


def subject_of_run(folder: Path, changes: list[str]) -> Subject:
    """Return a finished run's model with the weights that were tested."""
    run = load_run(folder, changes)
    run.runtime.set_torch()
    record = run.record
    return Subject(run.config, run.task, run.model, run.runtime, record.run_id, record.outcome.step)


@torch_settings_kept()
def inspect(
    subject: Path | str | Sequence[str] | Mapping[str, Any] | nn.Module, only: Sequence[str] = ()
) -> Answers:
    """Return what `normlab inspect` finds out about a model, by question; it writes no file.

    `subject` is a run's folder, or the config or list of settings of a model to examine at
    initialization. `only` names the questions to ask; by default all of them, except, for a model
    at initialization, questions that only a trained model can answer.

    Raises UserError for another subject, such as a module, an unknown question or a damaged run.
    """
    if not isinstance(subject, Path | str | Sequence | Mapping):
        raise UserError(
            f"normlab.inspect cannot examine a {type(subject).__name__}: pass a run's folder, or "
            'settings such as ["norm=bn", "task=toy"]'
        )
    chosen = questions("model", names=[only] if isinstance(only, str) else only)
    if isinstance(subject, Path | str):
        examined = subject_of_run(Path(subject), [])
    else:
        config = subject if isinstance(subject, Mapping) else compose(subject)
        examined = subject_of(to_dict(config))
    return Answers({each.name: answer(each, examined, by_name=bool(only)) for each in chosen})


def answer(question: Question, subject: Subject, *, by_name: bool) -> Answer:
    """Return the answer to a question.

    A model at initialization gets questions about trained models only if they are asked `by_name`.
    """
    if question.trained and not subject.step and not by_name:
        return Answer.none("the model is untrained")
    return question.ask(subject)


def sheet(subject: Subject, answers: Mapping[str, Answer]) -> dict[str, Any]:
    """Return the content of `inspect.json` as plain values."""
    by_name = {each.name: each for each in questions("model")}
    return plain(
        {
            "format": FORMAT,
            "subject": {
                "run": subject.run_id,
                "step": subject.step,
                "seed": subject.seed,
                "config": subject.config,
                "params": sum(parameter.numel() for parameter in subject.model.parameters()),
            },
            "environment": subject.runtime.environment(),
            "data": subject.task.describe(),
            "examinations": {
                name: {
                    **each.plain(by_name[name]),
                    "verdict": each.verdict,
                    "value": each.value,
                    "threshold": each.threshold,
                }
                for name, each in answers.items()
            },
        }
    )


def side_by_side(
    runs: Mapping[Path, RunRecord],
    changes: list[str],
    chosen: Sequence[Question],
    doing: Callable[[str], AbstractContextManager[None]],
) -> tuple[dict[str, Any], dict[str, dict[str, None]]]:
    """Ask the questions about several runs, each inside `doing(STAGE)`.

    Returns the content of `inspect.json`, and each question's columns. In the content, `rows` has
    each experiment's values (mean, standard deviation and number of seeds), and `runs` the sheets.
    """
    values: dict[str, dict[str, list[Any]]] = {}
    columns = {each.name: dict[str, None]() for each in chosen}
    sheets: dict[str, Any] = {}
    for run in arranged([found_run(*each) for each in runs.items()]).runs:
        of_row = values.setdefault(f"{run.key.row} {run.key.point}".strip(), {})
        with doing(f"run {len(sheets) + 1} of {len(runs)}"):
            subject = subject_of_run(run.folder or Path(), changes)
            answers = {each.name: each.ask(subject) for each in chosen}
        sheets[str(run.folder)] = sheet(subject, answers)
        for name, each in answers.items():
            columns[name] |= dict.fromkeys(each.board)
            for column, value in each.board.items():
                of_row.setdefault(column, []).append(value)
    rows = {
        row: {column: asdict(Summary.of(seeds)) for column, seeds in by_column.items()}
        for row, by_column in values.items()
    }
    return {"format": FORMAT, "rows": rows, "runs": sheets}, columns


class MaskedValues(NamedTuple):
    """The activations of a batch, and a mask of its real positions."""

    all: Float[Tensor, "B P D"]
    valid: Bool[Tensor, "B P"]

    @property
    def real(self) -> Float[Tensor, "N D"]:
        """The values at real positions."""
        return self.all[self.valid]


class AttentionInputs(NamedTuple):
    """The inputs of an attention, with masks of visible keys and of real queries."""

    query: Float[Tensor, "B H P K"]
    key: Float[Tensor, "B H S K"]
    visible: Bool[Tensor, "..."] | None
    real: Bool[Tensor, "B P"]


class Pass:
    """The module calls recorded in one forward pass of a batch, in order.

    `calls` has the arguments and result of each call, by the module's kind and name. With `leaves`
    in `watched`, `entered` has the arguments of each stack's entry module.
    """

    def __init__(self) -> None:
        self.calls: dict[str, dict[str, list[tuple[Any, Any]]]] = defaultdict(dict)
        self.entered: dict[str, tuple[Any, ...]] = {}

    def outputs(self, kind: str) -> dict[str, MaskedValues]:
        """Return the output of each `stack` (`encoder`), or of each `layer` (`encoder.0`)."""
        last_calls = {name: calls[-1] for name, calls in self.calls[kind].items()}
        return {name: MaskedValues(*real_values(y, args)) for name, (args, y) in last_calls.items()}

    @property
    def attentions(self) -> dict[str, AttentionInputs]:
        """The inputs of each attention; the mask of real queries comes from the residual."""
        inputs: dict[str, AttentionInputs] = {}
        for name, [*_, ((query, key, _, *mask), _)] in self.calls["attention"].items():
            (x, tokens, *_), _ = self.calls["residual"][name][-1]
            inputs[name] = AttentionInputs(query, key, visible_keys(query, *mask), tokens.real(x))
        return inputs


Enter = Callable[[str, Tensor], Tensor]


def taking(model: nn.Module, mode: str) -> AbstractContextManager[None]:
    """Make norms use batch statistics (`training`) or their evaluation statistics (`eval`)."""
    return normalized_by(model, "batch") if mode == "training" else nullcontext()


def look(subject: Subject, batch: Batch, mode: str = "eval", *, enter: Enter | None = None) -> Pass:
    """Run a batch in the given mode and return the recorded pass."""
    with taking(subject.model, mode), watched(subject.model, enter=enter) as forward:
        subject.losses(batch)
    return forward


@contextmanager
def watched(
    model: nn.Module, *, enter: Enter | None = None, leaves: bool = False
) -> Iterator[Pass]:
    """Record the inputs and outputs of a model's modules during a forward pass.

    `enter` is called with a stack's name and its first layer's input, and returns the input to use.
    `leaves` makes the input of each stack a leaf of the autograd graph, before any norm on the
    embedded tokens, since that norm may leak too.
    """
    forward = Pass()
    with ExitStack() as hooks:

        def keep(kind: str, name: str, module: nn.Module) -> None:
            def called(_: nn.Module, args: tuple[Any, ...], y: Any) -> None:
                forward.calls[kind].setdefault(name, []).append((args, y))

            hooks.callback(module.register_forward_hook(called).remove)

        def replace(module: nn.Module, change: Callable[[tuple[Any, ...]], Any]) -> None:
            before = module.register_forward_pre_hook(lambda _, args: change(args))
            hooks.callback(before.remove)

        def leaf(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
            forward.entered[name] = (args[0].detach().requires_grad_(), *args[1:])
            return forward.entered[name]

        for kind, place in {"residual": Residual, "attention": AttentionCore}.items():
            for name, module in sites(model, place).items():
                keep(kind, name, module)
        for name, stack in stacks(model).items():
            keep("stack", name, stack.last)
            for number, block in enumerate(stack.blocks):
                keep("layer", f"{name}.{number}", block)
            if leaves:
                replace(stack.entry, partial(leaf, name))
            if enter is not None:
                replace(stack.first, lambda args, n=name: (enter(n, args[0]), *args[1:]))
        yield forward


def deviation(values: Sequence[Float[Tensor, "*any"]]) -> float:
    """Return the RMS deviation from the mean over sets, divided by the RMS of all values."""
    wide = torch.stack(list(values)).double()
    return over(rms(wide - wide.mean(0)), rms(wide))


def by_how_much(share: float) -> str:
    """Describe a relative change: `by 12.3 %`, or `not at all`."""
    if share < ROUNDING:
        return f"not at all{' (rounding)' if share else ''}"
    return f"by {percent(share)}"
