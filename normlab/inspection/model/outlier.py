"""Measures how a 999 injected into one token affects attention and other tokens."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.findings.finding import AnswerTable, Cell, Finding
from normlab.findings.question import question
from normlab.findings.relative_change import relative_change
from normlab.inspection.model.built_model import BuiltModel
from normlab.inspection.model.recorded_pass import Mode, RecordedPass, record
from normlab.probes.activations import describe_attention

OUTLIER = 999.0
SENTENCES = 8
SATURATED = 0.99  # a row of attention is saturated if one of its weights is above this
ALIVE = 0.5  # the softmax is called alive if at most this share of rows is saturated
_WITH = {"as evaluated": "as evaluated", "of the batch": "with batch statistics"}
_COLUMNS = (
    *("outlier in", "statistics", "largest logit", "least slope", "most saturated"),
    *("its sentence changes", "other sentences change"),
)


@question("outlier", of="model")
@torch.no_grad()
def outlier(built: BuiltModel) -> Finding:
    """Does the norm stop a 999 from saturating attention, and which tokens does it affect?

    999 is added to one feature of the first token in one held-out sentence of a batch, in the
    embedded tokens of one stack at a time. The batch is compared with the unchanged one:

        attention   the largest logit, the smallest slope and the largest share of saturated rows
                    of any attention in the outlier's sentence, as `AttentionWeights` defines them
        moved       ||x' - x|| / ||x|| for a stack's output x, at the other tokens of the sentence
                    (`own`) and at the tokens of other sentences (`others`)

    This is measured in eval mode and, if a norm uses running statistics, also with batch
    statistics. At initialization, such a norm is measured only with batch statistics, because its
    running variance of 1 is not the variance of the data. The softmax is alive if in each
    attention, at most half of the sentence's rows are saturated.
    """
    effects = effects_by_statistics(built)
    if not effects:
        return Finding.none("the model has no attention, and so no softmax over tokens")
    most = max([0.0, *(effect.saturated for effect in effects.values())])
    return Finding(
        "; ".join(f"{_WITH[name]}, {_in_words(effect)}" for name, effect in effects.items()),
        {"model": {name: effect.values() for name, effect in effects.items()}},
        AnswerTable(
            _COLUMNS, [row for name, effect in effects.items() for row in effect.rows(name)]
        ),
        verdict="fine" if most <= ALIVE else "look",
        value=most,
        threshold=ALIVE,
    )


def effects_by_statistics(built: BuiltModel) -> "dict[str, Effect]":
    """Return the effect of the outlier, keyed by the statistics in use.

    The result is empty if the model has no attention.
    """
    generator = built.generator("outlier")
    picked = generator.permutation(built.number("valid"))[:SENTENCES]
    batch = built.batch("valid", picked.tolist())
    place = float(generator.random())  # the feature's relative position, in [0, 1)
    modes: dict[str, Mode] = {}
    if built.step or not built.keeps_statistics:
        modes["as evaluated"] = "eval"
    if built.keeps_statistics:
        modes["of the batch"] = "training"
    effects: dict[str, Effect] = {}
    for statistics, mode in modes.items():
        before = record(built, batch, mode)
        if not before.attentions:
            return {}
        by_stack: dict[str, StackEffect] = {}
        for stack in before.outputs("stack"):
            after = record(built, batch, mode, enter=partial(_add, stack, place))
            by_stack[stack] = StackEffect(most_saturated(after), output_changes(before, after))
        effects[statistics] = Effect(most_saturated(before), by_stack)
    return effects


class AttentionExtremes(NamedTuple):
    """The most saturated values of several attentions, as `AttentionWeights` defines them."""

    largest: float
    slope: float
    saturated: float


class OutlierChange(NamedTuple):
    """How much an output changes at the sentence's other tokens, and in other sentences."""

    same_sentence: float
    others: float

    def values(self) -> dict[str, float]:
        """Return the entry in `inspect.json`."""
        return {"own": self.same_sentence, "others": self.others}


class StackEffect(NamedTuple):
    """The effect of an outlier in one stack's input on attention and on each stack's output."""

    attention: AttentionExtremes
    moved: Mapping[str, OutlierChange]

    def values(self) -> dict[str, Any]:
        """Return the entry in `inspect.json`."""
        moved = {stack: change.values() for stack, change in self.moved.items()}
        return {**self.attention._asdict(), "moved": moved}


class Effect(NamedTuple):
    """The effect of an outlier in each stack, and attention without an outlier."""

    unchanged: AttentionExtremes
    by_stack: Mapping[str, StackEffect]

    @property
    def saturated(self) -> float:
        """The largest share of saturated rows, whichever stack gets the outlier."""
        return max(each.attention.saturated for each in self.by_stack.values())

    @property
    def alive(self) -> bool:
        """Whether the softmax stays alive, whichever stack gets the outlier."""
        return self.saturated <= ALIVE

    @property
    def largest_change(self) -> OutlierChange:
        """The largest change of a stack's output by an outlier in the same stack's input."""
        changes = [each.moved[stack] for stack, each in self.by_stack.items()]
        return OutlierChange(max(x.same_sentence for x in changes), max(x.others for x in changes))

    def values(self) -> dict[str, Any]:
        """Return the entry in `inspect.json`."""
        return {
            "unchanged": self.unchanged._asdict(),
            "outlier_in": {stack: each.values() for stack, each in self.by_stack.items()},
            "alive": self.alive,
        }

    def rows(self, statistics: str) -> Iterator[tuple[Cell, ...]]:
        """Yield the rows of the table: the unchanged batch, and an outlier in each stack."""
        yield "-", statistics, *self.unchanged, None, None
        for stack, each in self.by_stack.items():
            yield stack, statistics, *each.attention, *each.moved[stack]


def _in_words(effect: Effect) -> str:
    """Return as text whether the softmax stays alive, and how much the outputs change."""
    alive = "the softmax stays alive" if effect.alive else "attention saturates"
    change = effect.largest_change
    return (
        f"{alive} ({effect.unchanged.saturated:.0%} -> {effect.saturated:.0%} of rows); other "
        f"tokens of the sentence change by {change.same_sentence:.0%}, other sentences by "
        f"{change.others:.0%}"
    )


def _add(stack: str, place: float, name: str, x: Float[Tensor, "B P D"]) -> Float[Tensor, "B P D"]:
    """Add the outlier to `x`, the input of the stack `name`, if `name` is `stack`."""
    added = torch.zeros_like(x)
    added[0, 0, int(place * x.shape[-1])] = OUTLIER if name == stack else 0
    return x + added


def most_saturated(forward: RecordedPass) -> AttentionExtremes:
    """Return the most saturated values of any attention in the first sentence of the batch."""
    described = []
    for query, key, visible, real in forward.attentions.values():
        rows = real.clone()
        rows[1:] = False
        described.append(describe_attention(query, key, visible, rows, threshold=SATURATED))
    return AttentionExtremes(
        largest=max(float(each["largest"]) for each in described),
        slope=min(float(each["slope"]) for each in described),
        saturated=max(float(each["saturated"]) for each in described),
    )


def output_changes(before: RecordedPass, after: RecordedPass) -> dict[str, OutlierChange]:
    """Return how much each stack's output changed in the first sentence and in the others."""
    changes: dict[str, OutlierChange] = {}
    outputs = after.outputs("stack")
    for name, end in before.outputs("stack").items():
        own_sentence, others = end.valid.clone(), end.valid.clone()
        own_sentence[1:] = own_sentence[0, 0] = others[0] = False
        changes[name] = OutlierChange(
            *(
                relative_change(outputs[name].all[tokens], end.all[tokens])
                for tokens in (own_sentence, others)
            )
        )
    return changes
