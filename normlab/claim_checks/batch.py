"""Checks of how an output depends on the rest of its batch, and of splitting batches."""

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.claim_checks.check import change_finding, check, exceeds_rounding, finding
from normlab.claim_checks.inputs import (
    LENGTH,
    SEED,
    WIDTH,
    draw_tokens,
    new_norm,
    trained_norm,
)
from normlab.claims.evidence import CheckFinding
from normlab.errors import UserError
from normlab.findings.relative_change import percent, relative_change
from normlab.inspection.model.batch_mates import (
    MATES,
    SentenceOutputs,
    attention_weights,
    changes_over_sets,
)
from normlab.inspection.norm.norm_calls import call, one_by_one, run, run_copy
from normlab.norms.base import Norm
from normlab.norms.batch import BatchNorm

SETS = 50  # the number of sets of batch mates, on which the numbers in the ledger depend


@check("batch.alone")
def alone() -> list[CheckFinding]:
    """In eval, what does bn do with a single sentence, or with one longer than in training?"""
    x, longer = draw_tokens(8, 16), draw_tokens(2, 40)
    bn, by_position = trained_norm("bn"), trained_norm("bn_position", num_positions=32)
    by_batch = trained_norm("bn", eval_stats="batch")
    single, single_by_batch = (
        relative_change(run(norm, x[:1]), run(norm, x)[:1]) for norm in (bn, by_batch)
    )
    beyond = relative_change(run(bn, longer)[:, 16:], run(bn, longer[:, 16:]))
    rows = dict(bn.named_buffers())["running_mean"].numel() // WIDTH
    error = refusal_of(by_position, longer)
    alone = "a sentence alone has a different output than in a batch"
    return [
        change_finding(
            "bn with running statistics", f"bn with running statistics: {alone}", single
        ),
        change_finding(
            "bn with the batch's own statistics",
            f"bn with the batch's own statistics: {alone}",
            single_by_batch,
        ),
        change_finding(
            "bn: positions",
            "bn: positions beyond the longest of training are treated differently",
            beyond,
            because=f", from {rows} row{'s' if rows != 1 else ''} of statistics",
            rows=float(rows),
        ),
        finding(
            "bn_position",
            "bn_position, the articles' own reading: it has no statistics for positions beyond "
            "the longest of training",
            error.partition(";")[0] if error else "it accepts them",
            holds=bool(error),
        ),
    ]


def refusal_of(norm: Norm, x: Float[Tensor, "B P D"]) -> str:
    """Return the message of the error that a norm raises for an input, or "" if it raises none."""
    try:
        run(norm, x)
    except UserError as error:
        return str(error)
    return ""


@check("batch.generation")
def generation() -> list[CheckFinding]:
    """Does decoding token by token give a different output than processing the whole sentence?"""
    x = draw_tokens(1, 16)
    norms = {
        "bn with running statistics": trained_norm("bn"),
        "bn with the batch's own statistics": trained_norm("bn", eval_stats="batch"),
    }
    text = "decoding token by token gives a different output than the whole sentence"
    return [
        change_finding(name, f"{name}: {text}", relative_change(one_by_one(norm, x), run(norm, x)))
        for name, norm in norms.items()
    ]


@check("batch.ranks")
def half_batches() -> list[CheckFinding]:
    """Does splitting a batch over two processes change the output?"""
    x = draw_tokens(16, LENGTH)
    whole = {name: run(new_norm(name), x) for name in ("bn", "ln")}
    moved = {
        name: relative_change(torch.cat([run(new_norm(name), half) for half in x.chunk(2)]), y)
        for name, y in whole.items()
    }
    half = "half of the batch on each of two processes"
    both = (
        "bn: even with statistics summed over processes, dividing the batch changes the output "
        "(norm.sync=true)"
    )
    return [
        change_finding(
            "bn: half of the batch", f"bn: {half} changes the output (norm.sync=false)", moved["bn"]
        ),
        change_finding("bn: it does so", both, relative_change(_in_step(x), whole["bn"])),
        change_finding("ln", f"ln: {half} does not change the output", moved["ln"], expected=False),
    ]


@check("batch.gradients")
def split_gradients() -> list[CheckFinding]:
    """Do gradients change if a batch is split over processes, or over steps that accumulate them?

    A linear layer is followed by a norm that uses batch statistics. The loss is a fixed random
    projection of the outputs, summed over the batch. Its gradient with respect to the layer's
    weight is compared with the sum of the gradients over the parts of the batch.
    """
    x, target = draw_tokens(16, LENGTH), draw_tokens(16, LENGTH, seed=SEED + 2)
    generator = torch.Generator().manual_seed(SEED)
    start = torch.randn(WIDTH, WIDTH, generator=generator, dtype=torch.float64) / math.sqrt(WIDTH)

    def gradient(name: str, parts: int) -> Float[Tensor, "D D"]:
        weight = start.clone().requires_grad_()
        for tokens, projection in zip(x.chunk(parts), target.chunk(parts), strict=True):
            (call(new_norm(name), tokens @ weight) * projection).sum().backward()
        assert weight.grad is not None
        return weight.grad

    findings = []
    for name in ("bn", "ln"):
        for parts, of, how in (
            (2, "processes", "over two processes"),
            (4, "steps", "into four steps that accumulate it"),
        ):
            does = "changes" if name == "bn" else "keeps"
            statement = f"{name}: splitting a batch {how} {does} the gradient"
            moved = relative_change(gradient(name, parts), gradient(name, 1))
            findings.append(
                change_finding(f"{name}, {of}", statement, moved, expected=name == "bn")
            )
    return findings


@check("batch.order")
def order() -> list[CheckFinding]:
    """Does the output of a sample depend on the order of the samples in its batch?"""
    x = draw_tokens(16, LENGTH)
    orders = torch.randperm(16, generator=torch.Generator().manual_seed(SEED))
    return [
        change_finding(
            name,
            f"{name}: the order of the samples of a batch does not matter",
            relative_change(run(new_norm(name), x[orders]), run(new_norm(name), x)[orders]),
            expected=False,
        )
        for name in ("bn", "ln")
    ]


def _in_step(x: Float[Tensor, "B P D"]) -> Float[Tensor, "B P D"]:
    """Normalize the halves of a batch in two threads, with statistics summed over both halves."""
    together = threading.Barrier(2)
    sums: dict[int, Tensor] = {}

    def summed(rank: int, table: Tensor) -> Tensor:
        sums[rank] = table
        together.wait()
        total = sums[0] + sums[1]
        together.wait()
        return total

    def half(rank: int) -> Tensor:
        norm = new_norm("bn")
        assert isinstance(norm, BatchNorm)
        norm.pool.summed = partial(summed, rank)
        return run(norm, x.chunk(2)[rank])

    with ThreadPoolExecutor(2) as pool:
        return torch.cat(list(pool.map(half, (0, 1))))


@check("batch.mates")
def computed_mates() -> list[CheckFinding]:
    """Do a sentence's values and attention change with the rest of its batch?

    One sentence, which attends only to itself, is batched with each of fifty sets of 31 others.
    """
    pool = draw_tokens(SETS * MATES + 1, LENGTH)
    sentence, others = pool[:1], pool[1:].reshape(SETS, MATES, LENGTH, WIDTH)
    cases = (  # the finding's name, the norm in words, the norm, and whether a change is expected
        ("bn in training", "bn in training", new_norm("bn"), True),
        ("ln", "ln", new_norm("ln"), False),
        ("bn in eval", "bn in eval (running statistics)", trained_norm("bn"), True),
    )
    generator = torch.Generator().manual_seed(SEED)
    maps = torch.randn(2, WIDTH, WIDTH, generator=generator, dtype=torch.float64)

    def of_norm(norm: Norm, set_: Float[Tensor, "B P D"]) -> SentenceOutputs:
        y = run_copy(norm, torch.cat([sentence, set_]))[0]
        query, key = (each[None, None] for each in y @ maps / math.sqrt(WIDTH))
        return SentenceOutputs({"": y}, {"": attention_weights(query, key, None)})

    findings = []
    for name, in_words, norm, expected in cases:
        changed = changes_over_sets([of_norm(norm, set_) for set_ in others])
        values, weights = changed.values[""], changed.attention[""]
        answer = "identical"
        if exceeds_rounding(values):
            answer = f"values change by {percent(values)}, attention by {percent(weights)}"
        verb = "change" if expected else "do not change"
        statement = (
            f"with {in_words}, a sentence and its attention {verb} with the rest of the batch"
        )
        holds = exceeds_rounding(values) == expected
        findings.append(
            finding(name, statement, answer, holds=holds, values=values, attention=weights)
        )
    return findings
