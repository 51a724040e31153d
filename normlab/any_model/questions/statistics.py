"""The question of whether running statistics match the data."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count, repeat
from statistics import fmean
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.any_model.batches.example import ModelFailed, call_model
from normlab.any_model.batches.from_batch import inputs_of
from normlab.any_model.batches.outputs import tensors
from normlab.any_model.questions.examination import Examination, Loss
from normlab.any_model.questions.wording import unexamined
from normlab.any_model.tracing.norm_modules import keeps_running_statistics, running_statistics
from normlab.any_model.tracing.scripted import inside_script, is_scripted
from normlab.findings.finding import AnswerTable, Finding
from normlab.findings.question import question
from normlab.findings.relative_change import ratio

FAR_MEAN = 0.5  # limit of the distance between the means in standard deviations
FAR_VARIANCE = 2.0  # limit of the ratio of the variances, in either direction
FEWEST_VALUES = 16  # values per channel that are needed to compare moments
LARGEST_RISE = 0.05
"""The largest harmless relative rise of the loss from recalibrated to running statistics."""


@question("statistics", of="module")
@torch.no_grad()
def statistics(examination: Examination) -> Finding:
    """Are running statistics finite, updated, and close to the data's?

    Each row of the example is run alone, so that all positions are real. With the mean m and the
    variance v of the norm's inputs per channel, and the running statistics mu and s^2, these are
    medians over channels:

        distance   sqrt(max(0, (m - mu)^2 - e^2)) / s, with e the standard error of m over rows
        ratio      (v + eps) / (s^2 + eps), or the ratio of mean squares if a norm keeps only these

    Statistics are stale if the distance is above 0.5 or the ratio is outside 1/2 to 2. The value is
    the factor by which the worse of the two exceeds its limit. If a loss is passed, its mean over
    the batches is also measured with running statistics, with batch statistics, and with
    recalibrated ones (the average over the batches, "precise BN"). A loss with running statistics
    that is more than 5 % above the loss with recalibrated ones is worth a look.
    """
    modules: dict[str, Any] = dict(examination.model.named_modules())
    norms = {name: m for name, m in modules.items() if keeps_running_statistics(m)}
    if not norms:
        return Finding.none("no norm keeps running statistics")
    inside = inside_script(examination.model)
    hidden = [name for name in norms if name in inside]
    norms = {name: norm for name, norm in norms.items() if name not in inside}
    if not norms:
        return Finding(unexamined(hidden), {"unexamined": hidden}, verdict="look")
    moments = _moments(examination, norms)
    compared = [_compared(name, norm, moments[name]) for name, norm in norms.items()]
    plain = [norm for norm in norms.values() if not is_scripted(norm)]
    loss = examination.loss
    losses = {} if loss is None or not plain else _losses(examination, loss, plain)
    return _finding(compared, losses, hidden)


StatisticsState = Literal["matching", "unknown", "stale", "initial", "infinite"]
"""The state of running statistics: `unknown` if there is too little data, `initial` if they are
still 0 and 1, and `infinite` if there are infinities, NaN or negative variances.
"""
_IN_WORDS: Mapping[StatisticsState, str] = {"initial": "never updated", "infinite": "not finite"}


class ComparedStatistics(NamedTuple):
    """A norm's running statistics compared with the data.

    `distance` and `variance_ratio` are None if there is too little data. If the norm keeps no mean
    (not `has_mean`), the ratio is the ratio of mean squares. `times_limit` is the factor by which
    the worse of the two exceeds its limit.
    """

    norm: str
    state: StatisticsState
    times_limit: float = 0.0
    distance: float | None = None
    variance_ratio: float | None = None
    has_mean: bool = True

    @property
    def is_fault(self) -> bool:
        """Whether the statistics should not be used as they are."""
        return self.state not in ("matching", "unknown")


def _finding(
    compared: Sequence[ComparedStatistics], losses: Mapping[str, float], hidden: Sequence[str]
) -> Finding:
    """Return the finding. `hidden` are the norms in scripted modules, which cannot be compared."""
    faults = [each for each in compared if each.is_fault]
    broken = [each for each in compared if each.state == "infinite"]
    worst = max(broken or faults or compared, key=lambda each: each.times_limit)
    costly = bool(losses) and loss_rise(losses) > LARGEST_RISE
    has_data = any(each.distance is not None for each in compared)
    if not (faults or hidden or costly or has_data):
        return Finding.none("no norm has enough data to compare its running statistics with")
    rows = [
        (x.norm, x.distance, x.variance_ratio, x.times_limit, _fault_in_words(x)) for x in compared
    ]
    return Finding(
        _answer(compared, worst, losses, hidden),
        {
            "norms": {name: numbers for name, *numbers in rows},
            "loss": losses,
            "unexamined": hidden,
        },
        AnswerTable(("norm", "distance", "variance ratio", "times the limit", "state"), rows),
        verdict="broken" if broken else "look" if faults or hidden or costly else "fine",
        value=worst.times_limit,
        threshold=1.0,
        module=worst.norm if faults else None,
    )


def _answer(
    compared: Sequence[ComparedStatistics],
    worst: ComparedStatistics,
    losses: Mapping[str, float],
    hidden: Sequence[str],
) -> str:
    """Describe the worst norm, how many norms' statistics match the data, and the losses."""
    with_data = [each for each in compared if each.distance is not None]
    matching = sum(not each.is_fault for each in with_data)
    answer = f"running statistics match the data in {matching} of {len(with_data)} norms"
    if more := len(compared) - len(with_data):
        answer += f"; {more} could not be compared, for lack of data or a channel axis"
    if worst.is_fault:
        answer = f"{worst.norm or 'the model'}: {_fault_in_words(worst)}; {answer}"
    if hidden:
        answer += f"; {unexamined(hidden)}"
    if losses:
        parts = [f"{value:.4g} with {name}" for name, value in losses.items()]
        answer += f"; loss {', '.join(parts)} statistics"
    return answer


def _fault_in_words(compared: ComparedStatistics) -> str:
    if compared.state != "stale":
        return _IN_WORDS.get(compared.state, "")
    if not compared.has_mean:
        return f"stale: mean square {compared.variance_ratio:.2g}-fold"
    variance = f"variance {compared.variance_ratio:.2g}-fold"
    return f"stale: mean {compared.distance:.2g} sd off, {variance}"


def loss_rise(losses: Mapping[str, float]) -> float:
    """Return the relative rise from the `recalibrated` loss to the `running` loss."""
    least = losses["recalibrated"]
    return ratio(losses["running"] - least, abs(least))


class RowMoments(NamedTuple):
    """The number of values per channel in a row, and the mean and mean square of each channel."""

    count: int
    mean: Float[Tensor, " D"]
    square: Float[Tensor, " D"]


def _moments(examination: Examination, norms: Mapping[str, Any]) -> dict[str, list[RowMoments]]:
    """Return the moments of each norm's inputs in float64, one for each call with a single row."""
    moments: dict[str, list[RowMoments]] = defaultdict(list)
    example = examination.example
    key, axis = next(iter(example.row_axes.items()))
    rows = inputs_of(examination.batches[0], example.device)[key].shape[axis]
    for number in range(min(example.size, rows)):  # without rows that were added to a small batch
        row = example.alone(number)
        try:
            calls, _ = examination.runner.record(row, keep=lambda name, _: name in norms)
        except ModelFailed:  # too short for a convolution
            continue
        for recorded in calls:
            x = next(tensors(recorded.inputs))
            if (axis := _channel_axis(norms[recorded.name], x, recorded.output)) is not None:
                x = x.double().movedim(axis, 0).flatten(1)
                of_row = RowMoments(x.shape[1], x.mean(1), x.square().mean(1))
                moments[recorded.name].append(of_row)
    return moments


def _channel_axis(norm: Any, x: Tensor, y: Any) -> int | None:
    """Return the channel axis of a norm's input, or None if there is none.

    If several axes have as many entries as the running mean, the channel axis is the axis with the
    best linear fit of the output to the input, one fit per entry.
    """
    statistics = running_statistics(norm)
    channels = len(statistics.var) if statistics else 0
    axes = [axis for axis in range(1, x.ndim) if x.shape[axis] == channels]
    if len(axes) < 2 or not isinstance(y, Tensor) or y.shape != x.shape:
        return next(iter(axes), None)
    return min(axes, key=lambda axis: _not_linear(*(t.double().movedim(axis, 0) for t in (x, y))))


def _not_linear(x: Tensor, y: Tensor) -> float:
    """Return the squared error of linear fits of y to x, with one fit per entry of axis 0."""
    x, y = (t.flatten(1) - t.flatten(1).mean(1, keepdim=True) for t in (x, y))
    gain = (x * y).sum(1) / x.square().sum(1).clamp(min=1e-300)
    return float((y - gain[:, None] * x).square().sum())


def _not_finite(norm: Any) -> bool:
    """Return whether running statistics contain an infinity, a NaN or a negative variance."""
    statistics = running_statistics(norm)
    assert statistics
    moments = [x for x in statistics if x is not None]
    return not all(bool(x.isfinite().all()) for x in moments) or bool((statistics.var < 0).any())


def _compared(name: str, norm: Any, rows: Sequence[RowMoments]) -> ComparedStatistics:
    """Compare a norm's running statistics with the moments of its inputs in each row."""
    statistics = running_statistics(norm)
    assert statistics
    mean, var = statistics.mean, statistics.var
    if _not_finite(norm):
        return ComparedStatistics(name, "infinite", torch.inf)
    initial = bool((var == 1).all()) and (mean is None or bool((mean == 0).all()))
    finite = all(bool(x.isfinite().all()) for row in rows for x in (row.mean, row.square))
    if sum(row.count for row in rows) < FEWEST_VALUES or len(rows) < 2 or not finite:
        return ComparedStatistics(name, "initial" if initial else "unknown")
    # eps is added to both variances, so they agree if both are far below eps
    eps = getattr(norm, "eps", 1e-5)
    scale = var + eps
    pooled = _pooled(rows)
    if mean is None:
        distance, variance_ratio = 0.0, float(((pooled.square + eps) / scale).median())
    else:
        error = torch.stack([row.mean for row in rows]).var(0) / len(rows)
        squared = ((pooled.mean - mean).square() - error).clamp(min=0) / scale
        distance = float(squared.sqrt().median())
        biased = pooled.square - pooled.mean.square()
        unbiased = biased * pooled.count / (pooled.count - 1)
        variance_ratio = float(((unbiased + eps) / scale).median())
    times = max(
        distance / FAR_MEAN,
        variance_ratio / FAR_VARIANCE,
        1 / FAR_VARIANCE / max(variance_ratio, 1e-12),
    )
    state = "initial" if initial else "stale" if times > 1 else "matching"
    return ComparedStatistics(name, state, times, distance, variance_ratio, mean is not None)


def _pooled(rows: Sequence[RowMoments]) -> RowMoments:
    """Return the moments of all rows together."""
    count = sum(row.count for row in rows)
    mean = torch.stack([row.mean * row.count for row in rows]).sum(0) / count
    square = torch.stack([row.square * row.count for row in rows]).sum(0) / count
    return RowMoments(count, mean, square)


def _losses(examination: Examination, loss: Loss, norms: list[Any]) -> dict[str, float]:
    """Return the mean loss over the batches for each kind of statistics."""

    def measured(shares: Iterable[float] = repeat(0.0), *, training: bool) -> float:
        """Return the mean loss. `shares` are the batches' weights in the running statistics."""
        for norm in norms:
            norm.train(training)
        losses: list[float] = []
        for share, batch in zip(shares, examination.batches, strict=False):
            for norm in norms:
                norm.momentum = share
            values = inputs_of(batch, examination.example.device)
            example = replace(examination.example, values=values)
            output = call_model(examination.model, example, examination.runner.forward)
            losses.append(float(loss(output, batch)))
        return fmean(losses)

    with examination.runner.changed(examination.model.eval):
        losses = {
            "running": measured(training=False),
            "batch": measured(training=True),
        }
        measured((1 / number for number in count(1)), training=True)  # the mean over the batches
        return {**losses, "recalibrated": measured(training=False)}
