"""Checks of training and inference: what a norm stores, and whether its output differs."""

import copy
from typing import Any, NamedTuple

import torch

from normlab.claim_checks.check import change_finding, check, exceeds_rounding, finding
from normlab.claim_checks.inputs import WIDTH, draw_tokens, new_norm, trained_norm
from normlab.claims.evidence import CheckFinding
from normlab.findings.relative_change import percent, relative_change
from normlab.inspection.norm.norm_calls import run
from normlab.norms.base import Norm

MISFIT = 2  # the ratio of distances from the running mean, above which it does not fit


def gap_between_modes(name: str, sequences: int) -> float:
    """Return how much the output of a trained norm differs between eval and training.

    The input has the given number of sequences of 16 tokens.
    """
    norm, x = trained_norm(name), draw_tokens(sequences, 16)
    return relative_change(run(norm, x), run(copy.deepcopy(norm).train(), x))


@check("modes.mismatch")
def mismatch() -> list[CheckFinding]:
    """Does the same batch give a different output in eval than in training?"""
    few, many = gap_between_modes("bn", 2), gap_between_modes("bn", 256)
    return [
        finding(
            "bn",
            "bn: the same batch has a different output in eval than in training",
            f"changes by {percent(few)} for 32 tokens, by {percent(many)} for 4,096",
            holds=exceeds_rounding(few),
            few=few,
            many=many,
        ),
        change_finding(
            "ln",
            "ln: the same batch has the same output in eval and in training",
            gap_between_modes("ln", 2),
            expected=False,
        ),
    ]


class SameBits(NamedTuple):
    """Whether a norm's training output for a batch is bit-identical to two other outputs.

    `in_eval` compares it with the output in eval, and `alone` with the training outputs for each
    sentence alone.
    """

    in_eval: bool
    alone: bool


def same_bits(norm: Norm) -> SameBits:
    """Compare a norm's outputs in training mode and in eval mode, and for single sentences.

    The output for eight sentences in training mode is compared, bit for bit, with the output in
    eval mode and with the outputs for one sentence at a time.
    """
    x = draw_tokens(8, 16)
    training = run(norm, x)
    in_eval = run(copy.deepcopy(norm).eval(), x)
    alone = torch.cat([run(norm, each[None]) for each in x])
    return SameBits(torch.equal(training, in_eval), torch.equal(training, alone))


@check("modes.agreement")
def agreement() -> list[CheckFinding]:
    """Is layer norm bit-identical in training and eval, and for a sentence alone or in a batch?"""
    same = same_bits(new_norm("ln"))
    cases = (
        ("ln: training and inference", "ln: training and inference are the same", same.in_eval),
        ("ln: a batch of one", "ln: a batch of one is the same as a batch of eight", same.alone),
    )
    return [
        finding(name, statement, "equal bit for bit" if each else "not equal", holds=each)
        for name, statement, each in cases
    ]


class NormState(NamedTuple):
    """The names of the buffers that a norm saves, and whether its output differs in eval."""

    buffers: list[str]
    two_modes: bool


def norm_state(norm: Norm) -> NormState:
    """Return the buffers that a norm saves, and whether its output differs in eval.

    As a side effect, its running statistics are updated.
    """
    x = draw_tokens(4, 8)
    saved = [name for name, _ in norm.named_buffers() if name in norm.state_dict()]
    return NormState(saved, not torch.equal(run(norm, x), run(copy.deepcopy(norm).eval(), x)))


@check("modes.buffers")
def buffers() -> list[CheckFinding]:
    """Which buffers do layer norm and batch norm keep, and does eval differ from training?"""
    ln, bn = norm_state(new_norm("ln")), norm_state(new_norm("bn"))
    modes = {True: "two modes", False: "one mode"}
    return [
        finding(
            "ln keeps", "ln keeps no buffers", ", ".join(ln.buffers) or "none", holds=not ln.buffers
        ),
        finding(
            "bn keeps",
            "bn keeps running statistics",
            ", ".join(bn.buffers) or "none",
            holds=bool(bn.buffers),
        ),
        finding("ln has", "ln has one mode", modes[ln.two_modes], holds=not ln.two_modes),
        finding(
            "bn switches", "bn switches between two modes", modes[bn.two_modes], holds=bn.two_modes
        ),
    ]


class MeanDistances(NamedTuple):
    """How far batch norm's running mean is from the mean of one sentence, and of many sentences.

    Distances are root mean squares over features, in standard deviations of the tokens.
    """

    one: float
    many: float


def distances_of_means() -> MeanDistances:
    """Measure both distances for 256 sentences of 16 independent tokens."""
    norm, x = trained_norm("bn"), draw_tokens(256, 16)
    running = dict(norm.named_buffers())["running_mean"].reshape(-1)
    sigma = x.flatten(0, 1).std(0)
    by_sentence, by_batch = (
        float(((mean - running) / sigma).square().mean().sqrt())
        for mean in (x.mean(1), x.mean((0, 1)))
    )
    return MeanDistances(by_sentence, by_batch)


@check("modes.sentence")
def sentence() -> list[CheckFinding]:
    """Does the running mean of 256 sentences of 16 independent tokens fit a single sentence?"""
    one, many = distances_of_means()
    statement = "bn: the running mean is further from the mean of one sentence than from a batch's"
    answer = f"{one:.2f} standard deviations, and {many:.2f} from the mean of 256 sentences"
    return [finding("bn", statement, answer, holds=one > MISFIT * many, one=one, many=many)]


def stored_values(name: str, **values: Any) -> int:
    """Return how many values a new norm stores in its buffers, not counting scalars."""
    return sum(each.numel() for each in new_norm(name, **values).buffers() if each.dim())


@check("modes.memory")
def memory() -> list[CheckFinding]:
    """How many values does batch norm store with statistics per position, or for all positions?"""
    sizes = {n: stored_values("bn_position", num_positions=n) for n in (64, 128, 256)}
    one = stored_values("bn")
    listed = ", ".join(f"{each:,} of {count} positions" for count, each in sizes.items())
    in_proportion = len({each / count for count, each in sizes.items()}) == 1
    return [
        finding(
            "bn_position",
            "bn_position: what it stores grows in proportion to the longest sequence",
            f"values of {WIDTH} features: {listed}; bn keeps {one:,} for any length",
            holds=in_proportion and one < min(sizes.values()),
            **{f"of_{count}": each for count, each in sizes.items()},
        )
    ]
