"""Does the norm keep the softmax alive beside an outlier, and whom does the outlier disturb?

Document 002's sentence "I love eat" is three tokens of four features with a 999 among them; without
a norm, it says, the 999 drowns the others, the softmax gives all weight to one token, and its
gradient is 0 (claim 29).

(a) The sentence goes through a new norm of the subject's option, in float64, and attends to itself
(`normlab.health.sentence`). By row: the largest weight, and the slope 1 - sum p^2, the trace of the
softmax's Jacobian diag(p) - p p', which is 0 where the softmax is saturated. Layer norm brings the
999 down to 1.73, and its token still has one dominant entry: the others stand at -0.55 to -0.60.

(b) In the model 999 is added to one feature of the first token of one held-out sentence, where its
stream begins (the embedded tokens), in one stack at a time. Against the same batch unchanged:

    attention   entropy, largest logit, saturated rows and slope of each attention, in the sentence
                of the outlier (`own`) and in the others, as `normlab.probes.attention` has them
    moved       ||x' - x|| / ||x|| over the last values x of a stack, at the other tokens of the
                sentence and at those of other sentences
    gradient    ||dL/dx'|| / ||dL/dx|| over the first values x at the same tokens, L the mean loss

once as the model evaluates and once, where norms can, by the batch's own statistics.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from normlab.health.gradients import mean_loss
from normlab.health.sentence import in_sentence
from normlab.health.subject import Finding, Subject
from normlab.health.watch import stacks_watched
from normlab.models.attention import AttentionCore
from normlab.norms.base import batch_statistics, running_norms
from normlab.placements.base import Residual
from normlab.probes.attention import describe_attention
from normlab.probes.sites import sites
from normlab.tasks.base import Batch

QUESTION = "Does the norm keep the softmax alive beside a 999, and whom does the 999 disturb?"
OUTLIER = 999.0
SENTENCES = 8
SATURATED = 0.99
COLUMNS = (
    "outlier in",
    "statistics",
    "largest logit",
    "least slope",
    "most saturated",
    "others in its sentence move",
    "other sentences move",
    "gradient at the others",
)
_ALIVE = 0.5  # most rows that may be saturated


def examine(subject: Subject) -> Finding:
    """Send the document's sentence through the norm, and an outlier through the model."""
    if not sites(subject.model, AttentionCore):
        return Finding.none(QUESTION, "the model has no attention, and so no softmax over tokens")
    sentences = in_sentence(subject.config)
    generator = subject.generator("outlier")
    picked = generator.permutation(len(subject.task.lengths("valid")))[:SENTENCES]
    batch = subject.batch("valid", picked.tolist())
    feature = float(generator.random())
    modes: dict[str, Callable[[], AbstractContextManager[None]]] = {"as evaluated": nullcontext}
    if any(not norm.eval_by_batch for norm in running_norms(subject.model)):
        modes["of the batch"] = lambda: batch_statistics(subject.model)
    in_model = {}
    for name, mode in modes.items():
        with mode():
            in_model[name] = disturbances(subject, batch, feature)
    figures = {"sentence": sentences, "model": in_model}
    return Finding(QUESTION, _answer(figures), figures, COLUMNS, _rows(figures))


@dataclass(frozen=True)
class _Look:
    """What a pass of the batch showed, by attention and by stack."""

    attention: dict[str, dict[str, dict[str, float]]]
    valid: dict[str, Bool[Tensor, "B P"]]
    last: dict[str, Float[Tensor, "B P D"]]
    gradient: dict[str, Float[Tensor, "B P D"]]


def disturbances(subject: Subject, batch: Batch, feature: float) -> dict[str, Any]:
    """Return the attentions of the batch unchanged, and what an outlier in each stack changes.

    `feature` chooses the feature by its place in the width, from 0 to below 1. The softmax is alive
    where in no attention more than half of the rows of the outlier's sentence are saturated.
    """
    before = _look(subject, batch, lambda _, x: x)
    found = {
        stack: _disturbed(before, _look(subject, batch, _adding(stack, feature)))
        for stack in before.last
    }
    unchanged = worst(before.attention)
    changed = [worst(by["attention"]) for by in found.values()]
    saturated = max(by["saturated"] for by in changed)
    return {
        "unchanged": before.attention,
        "outlier_in": found,
        "saturated": {"before": unchanged["saturated"], "after": saturated},
        "least_slope": {
            "before": unchanged["slope"],
            "after": min(by["slope"] for by in changed),
        },
        "alive": saturated <= _ALIVE,
    }


def _disturbed(before: _Look, after: _Look) -> dict[str, Any]:
    """Compare two passes at the tokens that have no outlier added, by stack."""
    moved, gradients = {}, {}
    for name, valid in before.valid.items():
        tokens = _by_sentence(valid)
        tokens["own"][0, 0] = False
        old, new = before.last[name], after.last[name]
        moved[name] = {where: ratio(new - old, old, chosen) for where, chosen in tokens.items()}
        old, new = before.gradient[name], after.gradient[name]
        gradients[name] = {where: ratio(new, old, chosen) for where, chosen in tokens.items()}
    return {"attention": after.attention, "moved": moved, "gradient": gradients}


def ratio(
    above: Float[Tensor, "B P D"], below: Float[Tensor, "B P D"], tokens: Bool[Tensor, "B P"]
) -> float:
    """Return the ratio of the Euclidean norms over chosen tokens; nan where both are 0."""
    upper, lower = (float(table[tokens].double().norm()) for table in (above, below))
    return upper / lower if lower else math.inf if upper else math.nan


@contextmanager
def attentions_watched(model: nn.Module) -> Iterator[dict[str, dict[str, dict[str, float]]]]:
    """Describe each attention of the next pass, in the batch's first sentence and in the others."""
    seen: dict[str, dict[str, dict[str, float]]] = {}
    queries: list[Tensor] = []

    def enter(_: nn.Module, arguments: tuple[Any, ...]) -> None:
        queries[:] = [arguments[1].real(arguments[0])]

    def look_at(name: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def look(_: nn.Module, arguments: tuple[Any, ...]) -> None:
            query, key, _, visible = arguments
            seen[name] = {
                where: {
                    figure: float(value)
                    for figure, value in describe_attention(
                        query, key, visible, rows, threshold=SATURATED
                    ).items()
                }
                for where, rows in _by_sentence(queries[0]).items()
            }

        return look

    cores = sites(model, AttentionCore)
    with ExitStack() as hooks:
        for name, residual in sites(model, Residual).items():
            if name in cores:
                hooks.callback(residual.register_forward_pre_hook(enter).remove)
                hooks.callback(cores[name].register_forward_pre_hook(look_at(name)).remove)
        yield seen


def _by_sentence(valid: Bool[Tensor, "B P"]) -> dict[str, Bool[Tensor, "B P"]]:
    first = torch.arange(len(valid), device=valid.device)[:, None] == 0
    return {"own": valid & first, "others": valid & ~first}


def _adding(stack: str, feature: float) -> Callable[[str, Tensor], Tensor]:
    def enter(name: str, x: Tensor) -> Tensor:
        if name != stack:
            return x
        added = torch.zeros_like(x)
        added[0, 0, int(feature * x.shape[-1])] = OUTLIER
        return x + added

    return enter


def _look(subject: Subject, batch: Batch, enter: Callable[[str, Tensor], Tensor]) -> _Look:
    with (
        torch.enable_grad(),
        stacks_watched(subject.model, enter) as ends,
        attentions_watched(subject.model) as attention,
    ):
        loss = mean_loss(subject.task, subject.model, batch)
        gradients = torch.autograd.grad(loss, [end.first for end in ends.values()])
    return _Look(
        attention=dict(attention),
        valid={name: end.valid for name, end in ends.items()},
        last={name: end.last.detach() for name, end in ends.items()},
        gradient=dict(zip(ends, gradients, strict=True)),
    )


def _rows(figures: Mapping[str, Any]) -> list[tuple[str | float | None, ...]]:
    rows: list[tuple[str | float | None, ...]] = []
    for site, found in figures["sentence"].items():
        saturated = fmean(weight > SATURATED for weight in found["largest_weight"])
        rows.append(
            ("3 words", site, found["largest_logit"], min(found["slope"]), saturated, *[None] * 3)
        )
    for statistics, found in figures["model"].items():
        rows.append(("-", statistics, *_attention(found["unchanged"]), *[None] * 3))
        for stack, by in found["outlier_in"].items():
            effects = by["moved"][stack]["own"], by["moved"][stack]["others"]
            gradient = by["gradient"][stack]["own"]
            rows.append((stack, statistics, *_attention(by["attention"]), *effects, gradient))
    return rows


def _attention(attention: Mapping[str, Any]) -> tuple[float, float, float]:
    found = worst(attention)
    return found["largest"], found["slope"], found["saturated"]


def worst(attention: Mapping[str, Any]) -> dict[str, float]:
    """Return of the attentions in the outlier's sentence the figures nearest saturation."""
    own = [found["own"] for found in attention.values()]
    return {
        "largest": max(found["largest"] for found in own),
        "slope": min(found["slope"] for found in own),
        "saturated": max(found["saturated"] for found in own),
    }


def _answer(figures: Mapping[str, Any]) -> str:
    parts = [
        f"{site} makes {found['values'][0][2]:.3g} of the document's 999, least slope "
        f"{min(found['slope']):.2g}"
        for site, found in figures["sentence"].items()
    ]
    for statistics, found in figures["model"].items():
        moved = [by["moved"][stack] for stack, by in found["outlier_in"].items()]
        own, others = (max(by[where] for by in moved) for where in ("own", "others"))
        before, after = (found["saturated"][when] for when in ("before", "after"))
        parts.append(
            f"the model {statistics} {_fate(before, after)} (saturated rows {before:.0%} -> "
            f"{after:.0%}) and moves other tokens of the sentence by {own:.0%}, other sentences by "
            f"{others:.0%}"
        )
    return "; ".join(parts)


def _fate(before: float, after: float) -> str:
    if before > _ALIVE:
        return "is saturated without the 999 already"
    return "keeps the softmax alive" if after <= _ALIVE else "saturates"
