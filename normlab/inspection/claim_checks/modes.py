"""Training and inference: what a norm stores, and whether its output differs."""

import copy
from typing import Any

import torch
from torch import Tensor

from normlab.claims.evidence import CheckFinding
from normlab.findings.relative_change import percent, relative_change
from normlab.inspection.claim_checks.check import change_finding, changes, check, finding
from normlab.inspection.claim_checks.inputs import WIDTH, draw_tokens, new_norm, trained_norm
from normlab.inspection.norm.norm_calls import run


@check("modes.mismatch")
def mismatch() -> list[CheckFinding]:
    """Does the same batch give a different output in eval than in training?"""

    def gap(name: str, sequences: int) -> float:
        norm, x = trained_norm(name), draw_tokens(sequences, 16)
        return relative_change(run(norm, x), run(copy.deepcopy(norm).train(), x))

    few, many, layer = gap("bn", 2), gap("bn", 256), gap("ln", 2)
    statement = "bn: the same batch has a different output in eval than in training"
    answer = f"changes by {percent(few)} for 32 tokens, by {percent(many)} for 4,096"
    return [
        finding("bn", statement, answer, holds=changes(few), few=few, many=many),
        change_finding(
            "ln", "ln: the same batch has the same output in both", layer, expected=False
        ),
    ]


@check("modes.agreement")
def agreement() -> list[CheckFinding]:
    """Is layer norm bit-identical in training and eval, and for a sentence alone or in a batch?"""
    norm, x = new_norm("ln"), draw_tokens(8, 16)
    training = run(norm, x)
    in_eval = run(copy.deepcopy(norm).eval(), x)
    alone = torch.cat([run(norm, each[None]) for each in x])
    return [
        _same_bits(
            "ln: training and inference",
            "ln: training and inference are the same",
            torch.equal(training, in_eval),
        ),
        _same_bits(
            "ln: a batch of one",
            "ln: a batch of one is the same as a batch of eight",
            torch.equal(training, alone),
        ),
    ]


def _same_bits(name: str, statement: str, same: bool) -> CheckFinding:
    return finding(name, statement, "equal bit by bit" if same else "not equal", holds=same)


@check("modes.buffers")
def buffers() -> list[CheckFinding]:
    """Which buffers do layer norm and batch norm keep, and does eval differ from training?"""
    x, modes = draw_tokens(4, 8), {True: "two modes", False: "one mode"}
    names, has_two = {}, {}
    for name in ("ln", "bn"):
        norm = new_norm(name)
        names[name] = ", ".join(n for n, _ in norm.named_buffers() if n in norm.state_dict())
        has_two[name] = not torch.equal(run(norm, x), run(copy.deepcopy(norm).eval(), x))
    return [
        finding("ln keeps", "ln keeps no buffers", names["ln"] or "none", holds=not names["ln"]),
        finding(
            "bn keeps",
            "bn keeps running statistics",
            names["bn"] or "none",
            holds=bool(names["bn"]),
        ),
        finding("ln has", "ln has one mode", modes[has_two["ln"]], holds=not has_two["ln"]),
        finding(
            "bn switches",
            "bn switches between two modes",
            modes[has_two["bn"]],
            holds=has_two["bn"],
        ),
    ]


@check("modes.sentence")
def sentence() -> list[CheckFinding]:
    """Does the running mean fit a single sentence? For 256 sentences of 16 independent tokens."""
    norm, x = trained_norm("bn"), draw_tokens(256, 16)
    running = dict(norm.named_buffers())["running_mean"].reshape(-1)
    sigma = x.flatten(0, 1).std(0)

    def distance(mean: Tensor) -> float:
        return float(((mean - running) / sigma).square().mean().sqrt())

    one, many = distance(x.mean(1)), distance(x.mean((0, 1)))
    statement = "bn: the running mean is further from the mean of one sentence than from a batch's"
    answer = f"{one:.2f} standard deviations, and {many:.2f} from the mean of 256 sentences"
    return [finding("bn", statement, answer, holds=one > 2 * many, one=one, many=many)]


@check("modes.memory")
def memory() -> list[CheckFinding]:
    """How many values does batch norm store with one row per position, or one row for all?"""

    def size(name: str, **values: Any) -> int:
        buffers = new_norm(name, **values).buffers()
        # not the number of updates
        return sum(buffer.numel() for buffer in buffers if buffer.dim())

    sizes = {count: size("bn_position", num_positions=count) for count in (64, 128, 256)}
    one = size("bn")
    listed = ", ".join(f"{each:,} of {count} positions" for count, each in sizes.items())
    holds = len({each / count for count, each in sizes.items()}) == 1 and one < min(sizes.values())
    statement = "bn_position: what it stores grows in proportion to the longest sequence"
    answer = f"values of {WIDTH} features: {listed}; bn keeps {one:,} for any length"
    numbers = {f"of_{count}": float(each) for count, each in sizes.items()}
    return [finding("bn_position", statement, answer, holds=holds, **numbers)]
