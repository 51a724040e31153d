"""Outliers: does the norm stop a 999 from saturating attention, and which tokens does it affect?"""

from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.any_model.movement import movement
from normlab.inspect.model import Pass, Subject, look
from normlab.inspect.question import Cell, Finding, Table, question
from normlab.probes.activations import describe_attention

OUTLIER = 999.0
SENTENCES = 8
SATURATED = 0.99
ALIVE = 0.5  # the largest share of rows that may be saturated
_WITH = {"as evaluated": "as evaluated", "of the batch": "with batch statistics"}
_COLUMNS = (
    *("outlier in", "statistics", "largest logit", "least slope", "most saturated"),
    *("its sentence moves", "other sentences move"),
)


@question("outlier", of="model")
@torch.no_grad()
def outlier(subject: Subject) -> Finding:
    """Does the norm stop a 999 from saturating attention, and which tokens does it affect?

    999 is added to one feature of the first token of one held-out sentence, in the embedded tokens
    of one stack at a time. Compared with the unchanged batch:

        attention   largest logit, smallest slope and most saturated rows of any attention in the
                    outlier's sentence, as defined in `probes.activations`
        moved       ||x' - x|| / ||x|| for a stack's output x, at the other tokens of the sentence
                    (`own`) and at the tokens of other sentences (`others`)

    This is measured in eval mode and, if a norm uses running statistics, also with batch
    statistics; at initialization only with these, since a running variance of 1 is not the data's.
    The softmax is alive if no attention has over half of the sentence's rows saturated.
    """
    generator = subject.generator("outlier")
    picked = generator.permutation(subject.number("valid"))[:SENTENCES]
    batch = subject.batch("valid", picked.tolist())
    place = float(generator.random())  # the feature's relative position, in [0, 1)
    modes: dict[str, str] = {}
    if subject.step or not subject.keeps_statistics:
        modes["as evaluated"] = "eval"
    if subject.keeps_statistics:
        modes["of the batch"] = "training"
    values: dict[str, Any] = {}
    rows: list[tuple[Cell, ...]] = []
    answers, most = [], 0.0
    for statistics, mode in modes.items():
        before = look(subject, batch, mode)
        if not before.attentions:
            return Finding.none("the model has no attention, and so no softmax over tokens")
        passes = {
            stack: look(subject, batch, mode, enter=partial(_add, stack, place))
            for stack in before.outputs("stack")
        }
        unchanged = worst(before)
        rows.append(("-", statistics, *unchanged.values(), None, None))
        found = {stack: {**worst(seen), **moved(before, seen)} for stack, seen in passes.items()}
        for stack, each in found.items():
            shown = (each[name] for name in unchanged)
            rows.append((stack, statistics, *shown, *each["moved"][stack].values()))
        saturated = max(each["saturated"] for each in found.values())
        own, others = (
            max(each["moved"][stack][where] for stack, each in found.items())
            for where in ("own", "others")
        )
        alive, most = saturated <= ALIVE, max(most, saturated)
        values[statistics] = {"unchanged": unchanged, "outlier_in": found, "alive": alive}
        answers.append(
            f"{_WITH[statistics]}, {'the softmax stays alive' if alive else 'attention saturates'} "
            f"({unchanged['saturated']:.0%} -> {saturated:.0%} of rows); other tokens of the "
            f"sentence change by {own:.0%}, other sentences by {others:.0%}"
        )
    return Finding(
        "; ".join(answers),
        {"model": values},
        Table(_COLUMNS, rows),
        verdict="fine" if most <= ALIVE else "look",
        value=most,
        threshold=ALIVE,
    )


def _add(stack: str, place: float, name: str, x: Float[Tensor, "B P D"]) -> Float[Tensor, "B P D"]:
    """Add the outlier to `x`, the input of the stack `name`, if that is the chosen `stack`."""
    added = torch.zeros_like(x)
    added[0, 0, int(place * x.shape[-1])] = OUTLIER if name == stack else 0
    return x + added


def worst(seen: Pass) -> dict[str, float]:
    """Return the most saturated values of any attention in the batch's first sentence."""
    found = []
    for query, key, visible, real in seen.attentions.values():
        rows = real.clone()
        rows[1:] = False
        found.append(describe_attention(query, key, visible, rows, threshold=SATURATED))
    which = {"largest": max, "slope": min, "saturated": max}
    return {name: choose(float(each[name]) for each in found) for name, choose in which.items()}


def moved(before: Pass, after: Pass) -> dict[str, dict[str, dict[str, float]]]:
    """Return how far each stack's output moved in the first sentence and in the others."""
    found, changed = {}, after.outputs("stack")
    for name, end in before.outputs("stack").items():
        own, others = end.valid.clone(), end.valid.clone()
        own[1:] = own[0, 0] = others[0] = False
        found[name] = {
            where: movement(changed[name].all[tokens], end.all[tokens])
            for where, tokens in (("own", own), ("others", others))
        }
    return {"moved": found}
