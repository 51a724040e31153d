"""`normlab.inspect(model, batches)`: finds what changes a model's output although it should not."""

import inspect as inspect_
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Literal

from torch import nn

from normlab.any_model.batches.axes import Axes
from normlab.any_model.batches.example import Forward, ModelFailed
from normlab.any_model.batches.from_batch import (
    Conventions,
    example_of,
    first_batches,
    input_without_numbers,
)
from normlab.any_model.batches.masks import MaskArgument
from normlab.any_model.questions.examination import Examination, Loss
from normlab.any_model.questions.registry import questions
from normlab.any_model.report import Report, title_of
from normlab.any_model.tracing.calls import Runner, uncompiled
from normlab.any_model.tracing.restore import State, preserved
from normlab.any_model.tracing.supported import check_unquantized, plain_model
from normlab.errors import UserError
from normlab.findings.finding import Finding
from normlab.findings.question import Question
from normlab.records.labels import one_line


def inspect(
    model: nn.Module,
    batches: Any = None,
    *,
    forward: Forward | None = None,
    mask: MaskArgument = None,
    rows: int | None = None,
    positions: int | None = None,
    loss: Loss | None = None,
    causal: bool | None = None,
    checks: Literal["quick", "all"] | Sequence[str] = "quick",
    max_rows: int = 4,
    max_positions: int = 128,
) -> Report:
    """Find what changes a model's output although it should not, by how much, and in which module.

    `batches` are inputs of the model: dicts, tuples or tensors. The first one is examined, cut to
    `max_rows` rows and `max_positions` positions. `forward(model, batch)` calls the model; by
    default it is called as `model(**batch)`, as `model(batch)` if it takes a dict, or as
    `model(*batch)`. `rows` and `positions` are the row and position axes of the main input, if they
    are not 0 and 1: set `rows=1` for `[T, B]`. `mask` is the name of the input that marks real
    tokens, or a mask `[rows, positions]`, or the meaning of its ones: "real", "padding", or
    `{"name": "padding"}`. `loss(output, batch)` is used only by the question `statistics`. `causal`
    says whether positions must not depend on later ones. `checks` is "quick", "all" or the names of
    questions.

    The model is examined in eval mode. Afterwards the state of the model and of the process is
    restored. A question that applies but cannot be answered has the verdict `failed`.

    Raises UserError with a one-sentence message if the model or inputs cannot be examined.
    """
    check_call(model, batches, max_rows, max_positions)
    chosen = _chosen(checks)
    model, first = plain_model(model), first_batches(batches)
    check_unquantized(model)
    if forward is None and takes_a_dict(model, first[0]):
        forward = _with_a_dict
    with uncompiled(), _quiet(), preserved(model, (first, forward)) as state:
        model.eval()
        start = State([("", model), ("", (first, forward))], state)  # in eval mode
        runner = Runner(model, forward, start)
        with nullcontext() if start.shares_guard else start.guard:
            axes = Axes(rows, positions)
            conventions = Conventions(forward, mask, axes, max_rows, max_positions)
            examination = _examination(runner, first, conventions, loss, causal)
            findings = dict(_answers(examination, chosen))
            title = title_of(examination)
    if state.refused:
        findings["restore"] = _not_restored(state.refused)
    if one_way := state.snapshot.one_way:
        title += f"; iterators cannot be rewound: {', '.join(one_way[:3])}"
    if unread := state.snapshot.unread:
        title += f"; state that cannot be read, or restored: {one_line(', '.join(unread[:3]))}"
    return Report(title, findings, examination.norms_so_far)


def check_call(model: object, batches: Any, max_rows: int, max_positions: int) -> None:
    """Raise UserError if `model` is not a module, inputs are missing, or a size is below 1."""
    if not hasattr(model, "named_modules"):
        raise UserError(
            f"normlab.inspect examines torch modules, not a {type(model).__name__}; use "
            "normlab.inspect_run(FOLDER) for a run, or "
            "normlab.inspect_config(normlab.compose(SETTINGS)) for settings"
        )
    if batches is None:
        raise UserError(
            f"normlab.inspect cannot examine a {type(model).__name__} without its inputs; pass "
            "them: normlab.inspect(model, batches)"
        )
    if min(max_rows, max_positions) < 1:
        raise UserError(f"max_rows={max_rows} and max_positions={max_positions} must be 1 or more")


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress torch's warning about nested tensors, which its fused encoder layers use."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The PyTorch API of nested tensors", UserWarning)
        yield


def _check_finite(examination: Examination) -> None:
    """Raise UserError if the output contains NaN and an input is not finite."""
    without = input_without_numbers(examination.longest_row)
    if without and examination.outputs_with_nan:
        raise UserError(
            f"the output contains NaN because the first batch has NaN or infinities in "
            f"`{without}`; pass finite numbers"
        )


def _examination(
    runner: Runner,
    batches: Sequence[Any],
    conventions: Conventions,
    loss: Loss | None,
    causal: bool | None,
) -> Examination:
    """Return the examination of the first batch.

    Raises UserError if the model cannot run its longest row, or returns NaN because an input is not
    finite.
    """
    # second try uncut, for models that accept only one length
    for attempt in (conventions, replace(conventions, max_positions=sys.maxsize)):
        example = example_of(runner.model, batches[0], attempt)
        examination = Examination(runner, example, batches, loss, causal)
        try:
            examination.outputs(examination.longest_row)
            _check_finite(examination)
            return examination
        except ModelFailed as error:
            failed = error
    raise UserError(f"the model cannot run one row of the first batch: {failed}") from failed


def _chosen(checks: Literal["quick", "all"] | Sequence[str]) -> list[Question]:
    """Return the questions to ask, `forward` first.

    Raises UserError for an unknown name, or if no question is named.
    """
    if checks == "quick" or checks == "all":
        return [*questions("forward"), *questions(slow=checks == "all")]
    names = [checks] if isinstance(checks, str) else [*checks]
    if not names:
        raise UserError(
            'checks=[] names no question; omit checks= to ask all quick questions, or use "all"'
        )
    return [*questions("forward"), *questions(*names)]


def _not_restored(refused: Sequence[str]) -> Finding:
    text = f"the model has changed: {'; '.join(refused[:3])}"
    return Finding(text, verdict="failed", name="restore")


def _answers(
    examination: Examination, questions: Sequence[Question]
) -> Iterator[tuple[str, Finding]]:
    """Ask the questions in order, and yield each question's name with its finding.

    If the forward pass is broken, the other questions do not apply.
    """
    runs = Finding("")
    for question in dict.fromkeys(questions):
        try:
            if runs.verdict == "broken" and not _may_explain_nan(question, examination):
                finding = Finding.none("the forward pass is broken")
            else:
                finding = question.ask(examination)
        except Exception as error:  # raised by the model or by this code
            reason = (
                str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
            )
            finding = Finding(f"no answer: {one_line(reason)}", verdict="failed")
        finding = replace(finding, name=question.name)
        runs = finding if question.name == "forward" else runs
        yield question.name, finding


def _may_explain_nan(question: Question, examination: Examination) -> bool:
    """Return whether the output contains NaN and the question is one that may explain it."""
    return question.name == "statistics" and bool(examination.outputs_with_nan)


def takes_a_dict(model: nn.Module, batch: Any) -> bool:
    """Return whether a model takes a batch of named inputs as a single argument, a dict.

    It does if it has a single required argument, and no input has the name of an argument, as in
    SentenceTransformer.
    """
    if not isinstance(batch, Mapping):
        return False
    arguments = [*inspect_.signature(model.forward).parameters.values()]
    by_position = (inspect_.Parameter.POSITIONAL_ONLY, inspect_.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [a.name for a in arguments if a.kind in by_position and a.default is a.empty]
    known = {a.name for a in arguments} & batch.keys()
    return len(needed) == 1 and not known


def _with_a_dict(model: nn.Module, batch: Any) -> Any:
    return model(dict(batch))
