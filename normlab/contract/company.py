"""Checks of what an output depends on besides its own value, against what the norm declares."""

from collections.abc import Iterable
from typing import Any, get_args

import torch
from torch import Tensor

from normlab.contract.subject import (
    STEPS,
    Subject,
    Verdict,
    forward,
    moved,
    ok,
    seeded,
    violated,
)
from normlab.norms.base import Axis, Norm, RunningNorm, Stream

AXES: tuple[str, ...] = get_args(Axis)
_OTHERS = ("other sequences", "other positions", "its token's other features")
_CHANGES = ((1.0, 0.7), (-40.0, 0.0), (0.0, 0.0))  # factor and summand


def pools(subject: Subject) -> Verdict:
    """Compare `pools` with what an output changes with in training, at the first and last step."""
    first = subject.new()
    norms = (first, subject.trained())
    declared = set(first.pools)
    found = set().union(*(_output_depends_on(norm) for norm in norms))
    kept = set().union(*(_statistics_depend_on(norm) for norm in norms))
    others = dict(zip(AXES, _OTHERS, strict=True))
    beyond = [axis for axis in AXES if axis in found - declared]
    across_tokens = declared & set(AXES[:2])
    if beyond and not (beyond == [AXES[2]] and across_tokens):
        return violated(
            f"declares pools={_set(declared)}, but a position's output changes with "
            f"{' and '.join(others[axis] for axis in beyond)}: it pools over "
            f"{' and '.join(beyond)} as well"
        )
    without = [axis for axis in AXES if axis in declared - found - kept]
    if without:
        return violated(
            f"declares pools={_set(declared)}, but an output does not change with "
            f"{' or '.join(others[axis] for axis in without)}: it does not pool over "
            f"{' or '.join(without)}"
        )
    said = f"over {' and '.join(a for a in AXES if a in declared)}" if declared else "over nothing"
    more = f"; an output changes with {others[AXES[2]]} too" if beyond else ""
    return ok(f"{said}, as declared{more}")


def _set(axes: Iterable[str]) -> str:
    return f"{{{', '.join(axis for axis in AXES if axis in axes)}}}"


def _output_depends_on(norm: Norm) -> set[str]:
    """Return the axes along which other values of the input move an output."""
    x = _values(norm)
    y = forward(norm, x)
    found = set[str]()
    for others in _changed(x, (slice(1, None),)):
        if not torch.equal(forward(norm, others)[0], y[0]):
            found.add(AXES[0])
    for others in _changed(x, (0, slice(1, None))):
        if not torch.equal(forward(norm, others)[0, 0], y[0, 0]):
            found.add(AXES[1])
    for feature in range(norm.dim):
        rest = [other for other in range(norm.dim) if other != feature]
        for others in _changed(x, (0, 0, rest)):
            if forward(norm, others)[0, 0, feature] != y[0, 0, feature]:
                found.add(AXES[2])
    return found


def _statistics_depend_on(norm: Norm) -> set[str]:
    """Return the axes of tokens along which the input moves running statistics."""
    if not isinstance(norm, RunningNorm):
        return set()
    x = _values(norm)
    before = _tables_after(norm, x)
    places = zip(AXES, ((slice(1, None),), (0, slice(1, None))), strict=False)
    return {
        axis
        for axis, place in places
        for others in _changed(x, place)
        if not torch.equal(_tables_after(norm, others), before)
    }


def _tables_after(norm: RunningNorm, x: Tensor) -> Tensor:
    former = {name: table.clone() for name, table in norm.tables.items()}
    with torch.no_grad():
        seeded(norm, x, Stream(torch.ones(x.shape[:2], dtype=torch.bool)))
        found = torch.cat([table.flatten().double() for table in norm.tables.values()])
        for name, table in norm.tables.items():
            table.copy_(former[name])
    return found


def _values(norm: Norm) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    return torch.randn(3, 4, norm.dim, generator=generator, dtype=torch.float64) * 3 + 2


def _changed(x: Tensor, place: Any) -> Iterable[Tensor]:
    for factor, summand in _CHANGES:
        other = x.clone()
        other[place] = other[place] * factor + summand
        yield other


def padding(subject: Subject) -> Verdict:
    """Put columns of padding beside real tokens: nothing of these may move."""
    for norm, mode in ((subject.new(), "training"), (subject.trained().eval(), "eval")):
        x = subject.values(4, 5)
        plain = _with_padding(subject, norm, x, None, 0.0)
        for extra, value in ((0, 0.0), (3, 0.0), (6, 1e3)):
            padded = _with_padding(subject, norm, x, extra, value)
            for what, before, after in zip(
                ("outputs", "gradients", "statistics"), plain, padded, strict=False
            ):
                if moved(before, after):
                    return violated(
                        f"in {mode} the {what} of real tokens change with padding beside them, or "
                        "with `stream.valid`, which is None without padding: go by `stream.real(x)`"
                    )
            if padded[3].any():
                return violated(f"in {mode} a gradient flows into padding")
    return ok("outputs, gradients and statistics are the same beside padding")


def _with_padding(
    subject: Subject, norm: Norm, x: Tensor, columns: int | None, value: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return outputs, gradients and statistics of real tokens, and the gradient of padding.

    Without `columns` of padding, None, the stream is dense.
    """
    extra = columns or 0
    other = subject.new().train(norm.training)
    other.load_state_dict(norm.state_dict())
    length = x.shape[1]
    filler = torch.full((x.shape[0], extra, x.shape[2]), value, dtype=x.dtype)
    valid = (torch.arange(length + extra) < length).expand(x.shape[0], -1)
    wide = torch.cat([x, filler], 1).requires_grad_()
    stream = Stream() if columns is None else Stream(valid)
    y = seeded(other, wide, stream)[:, :length]
    (gradient,) = torch.autograd.grad((y * y.detach().cos()).sum(), wide)
    tables = other.tables if isinstance(other, RunningNorm) else {}
    kept = torch.cat([torch.zeros(1), *(t.detach().flatten() for t in tables.values())])
    return y.detach(), gradient[:, :length], kept, gradient[:, length:]


def order(subject: Subject) -> Verdict:
    """Let the sequences of a batch change places."""
    x, stream = subject.tokens()
    places = torch.tensor([2, 0, 3, 1])
    for norm in (subject.new(), subject.trained(), subject.trained().eval()):
        y = forward(norm, x, stream.real(x))[places]
        other = forward(norm, x[places], stream.real(x)[places])
        real = stream.real(x)[places]
        if moved(y[real], other[real]):
            return violated(
                f"in {'training' if norm.training else 'eval'} a sequence comes out otherwise "
                "where the sequences of its batch change places"
            )
    return ok("the order of a batch's sequences makes no difference")


def alone(subject: Subject) -> Verdict:
    """Compare, in eval, a sequence in its batch with the same alone, and with the declaration."""
    norm = subject.trained().eval()
    x, stream = subject.tokens(STEPS + 1)
    depends = _depends_on_batch(norm, x, stream)
    if depends and norm.batch_independent:
        return violated(
            "in eval a sequence comes out otherwise alone than in its batch, and "
            "`batch_independent` is True: take running statistics there (RunningNorm), or name "
            f"{AXES[0]} in `pools`"
        )
    if not depends and not norm.batch_independent:
        return violated(
            "in eval a sequence comes out the same alone, and `batch_independent` is False: a norm "
            "with running statistics derives from RunningNorm, which knows"
        )
    return ok(
        "in eval a sequence depends on its batch, as declared"
        if depends
        else "in eval a sequence is the same alone as in a batch, as declared"
    )


def _depends_on_batch(norm: Norm, x: Tensor, stream: Stream) -> bool:
    together = forward(norm, x, stream.real(x))
    return any(
        moved(together[n, real], forward(norm, x[n : n + 1], stream.real(x)[n : n + 1])[0, real])
        for n, real in enumerate(stream.real(x))
    )


def stepwise(subject: Subject) -> Verdict:
    """Compare, in eval, one token at a time with all at once, and with the declaration."""
    norm = subject.trained().eval()
    x, stream = subject.tokens(STEPS + 1)
    whole = forward(norm, x, stream.real(x))[stream.real(x)]
    with torch.no_grad():
        columns = [
            seeded(norm, x[:, t : t + 1], Stream(stream.real(x)[:, t : t + 1], start=t))
            for t in range(x.shape[1])
        ]
    depends = moved(whole, torch.cat(columns, 1)[stream.real(x)])
    if depends and norm.incremental:
        return violated(
            "in eval tokens one at a time come out otherwise than all at once, and `incremental` "
            "is True: name what it pools over in `pools`; positions count from `stream.start`"
        )
    if not depends and not norm.incremental:
        return violated(
            "in eval tokens one at a time come out the same, and `incremental` is False: decoding "
            "would take the slow path for nothing"
        )
    return ok(
        "needs the whole sequence, as declared: decoding takes the slow path"
        if depends
        else "in eval tokens may come one at a time, as declared"
    )
