"""Checks of single outputs: their shape, their dtype, that they are numbers."""

import copy

import torch

from normlab.contract.subject import Subject, Verdict, ok, seeded, violated
from normlab.norms.base import RunningNorm, Stream

_WIDEN = "take it from `widen(x)` of normlab/norms/moments.py"
_CAST = "end `forward` with `.to(x.dtype)`"


def shape(subject: Subject) -> Verdict:
    """Ask for an output of the input's shape, and an input that is as it was."""
    for size in ((4, 6), (1, 6), (3, 1)):
        x = subject.values(*size)
        before = x.clone()
        y = seeded(subject.new(), x, Stream(torch.ones(size, dtype=torch.bool)))
        if y.shape != x.shape:
            given, got = (" x ".join(map(str, t.shape)) for t in (x, y))
            return violated(f"of {given} values it makes {got}: the output has the input's shape")
        if not torch.equal(x, before):
            return violated("writes into its input, which the residual branch reads as well")
        if not y.isfinite().all():
            return violated(f"makes NaN or infinity of {size[0]} sequences of {size[1]} tokens")
    return ok("the input's shape; the input stays as it was")


def zeros(subject: Subject) -> Verdict:
    """Ask for numbers where all values are alike, in training and in eval."""
    for value in (0.0, 3.0):
        for training in (True, False):
            norm = subject.new().train(training)
            x = torch.full((4, 6, subject.width), value, dtype=torch.float64)
            if not seeded(norm, x, Stream(torch.ones(4, 6, dtype=torch.bool))).isfinite().all():
                return violated(
                    f"makes NaN or infinity where every value is {value:g}: bound what it divides "
                    "by from below"
                )
    return ok("a batch without any spread gives numbers")


def precision(subject: Subject) -> Verdict:
    """Ask for the input's dtype, and for statistics that bf16 does not spoil.

    A mean of 300 with a deviation of 3 is lost in bf16, whose steps are 2 there.
    """
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        x, stream = subject.tokens()
        norm = subject.new(torch.float64 if dtype == torch.float64 else torch.float32)
        y = seeded(norm, x.to(dtype), stream)
        if y.dtype != dtype:
            given, got = (str(d).removeprefix("torch.") for d in (dtype, y.dtype))
            return violated(f"of {given} values it makes {got}: {_CAST}")
    norm = subject.new(torch.float32)
    exact = copy.deepcopy(norm)
    x, stream = subject.tokens()
    x = (x + 300).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = seeded(norm, x, stream)
    wanted = seeded(exact, x.float(), stream)
    if not torch.allclose(y.float()[stream.real(x)], wanted[stream.real(x)], rtol=1e-2, atol=1e-2):
        return violated(f"bf16 values of mean 300 lose their statistics: {_WIDEN}, in float32")
    if isinstance(norm, RunningNorm):
        wrong = [name for name, table in norm.tables.items() if table.dtype != torch.float32]
        if wrong:
            return violated(f"keeps {', '.join(wrong)} in another dtype than float32")
    return ok("the input's dtype; statistics in float32 under bf16")
