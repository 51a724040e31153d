"""The contract of a norm: what the rest of the package takes for granted about every norm.

`normlab norm check` asks these questions, and the tests hold all options of `configs/norm` to them.
"""

import copy
from collections.abc import Iterable, Iterator
from itertools import product

import torch
from torch import Tensor, nn

from normlab.inspect.axes import (
    axes_in_words,
    axes_moving_outputs,
    axes_moving_statistics,
    in_order,
)
from normlab.inspect.question import Finding, question, questions
from normlab.inspect.subject import (
    AXES,
    STEPS,
    BareNorm,
    Norm,
    batch_statistics,
    begin_step,
    call,
    call_dense,
    differ,
    extra_loss,
    fixed_map,
    look,
    one_by_one,
    recalibrated,
    remembers,
    run,
    state,
    tables,
    train_step,
)

BATCH, POSITION, FEATURE = AXES
_OTHERS = dict(
    zip(AXES, ("other sequences", "other positions", "its token's other features"), strict=True)
)
_WIDEN = "take it from `widen(x)` of normlab/norms/moments.py"


def examine(norm: BareNorm) -> Iterator[tuple[str, Finding]]:
    """Yield the answer to each question; an error that a norm raises breaks the contract."""
    for asked in questions("norm"):
        try:
            found = asked.ask(norm)
        except Exception as error:
            text = str(error).strip().partition("\n")[0]
            found = _broken(f"raises {type(error).__name__}: {text}{norm.line_of(error)}")
        yield asked.name, found


def _kept(answer: str) -> Finding:
    return Finding(answer, holds=True)


def _broken(answer: str) -> Finding:
    return Finding(answer, holds=False)


@question("shape", of="norm")
def shape(norm: BareNorm) -> Finding:
    """Does the output have the input's shape, and does the input stay as it was?"""
    for size in ((4, 6), (1, 6), (3, 1)):
        x = norm.values(*size)
        before = x.clone()
        y = call(norm.new(), x)
        if y.shape != x.shape:
            given, got = (" x ".join(map(str, t.shape)) for t in (x, y))
            return _broken(f"of {given} values it makes {got}: the output has the input's shape")
        if not torch.equal(x, before):
            return _broken("writes into its input, which the residual branch reads as well")
        if not y.isfinite().all():
            return _broken(f"makes NaN or infinity of {size[0]} sequences of {size[1]} tokens")
    return _kept("the input's shape; the input stays as it was")


@question("zeros", of="norm")
def zeros(norm: BareNorm) -> Finding:
    """Is the output finite where all values are the same, in training and in eval?"""
    for value, training in product((0.0, 3.0), (True, False)):
        x = torch.full((4, 6, norm.width), value, dtype=torch.float64)
        if not call(norm.new().train(training), x).isfinite().all():
            return _broken(
                f"makes NaN or infinity where every value is {value:g}: bound what it divides "
                "by from below"
            )
    return _kept("finite on a batch of equal values")


@question("precision", of="norm")
def precision(norm: BareNorm) -> Finding:
    """Does the output have the input's dtype, and do statistics survive bf16?

    A mean of 300 with a deviation of 3 is lost in bf16, whose steps are 2 there.
    """
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        x, valid = norm.tokens()
        own = norm.new(torch.float64 if dtype == torch.float64 else torch.float32)
        y = call(own, x.to(dtype), valid)
        if y.dtype != dtype:
            given, got = (str(d).removeprefix("torch.") for d in (dtype, y.dtype))
            return _broken(f"of {given} values it makes {got}: end `forward` with `.to(x.dtype)`")
    own = norm.new(torch.float32)
    exact = copy.deepcopy(own)
    x, valid = norm.tokens()
    x = (x + 300).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = call(own, x, valid).float()[valid]
    if not torch.allclose(y, call(exact, x.float(), valid)[valid], rtol=1e-2, atol=1e-2):
        return _broken(f"bf16 values of mean 300 lose their statistics: {_WIDEN}, in float32")
    wrong = [name for name, table in tables(own).items() if table.dtype != torch.float32]
    if wrong:
        return _broken(f"keeps {', '.join(wrong)} in another dtype than float32")
    return _kept("the input's dtype; statistics in float32 under bf16")


@question("pools", of="norm", claims=(11,))
def pools(norm: BareNorm) -> Finding:
    """Does it pool over the axes that it declares, at both ends of training?"""
    first = norm.new()
    norms = (first, norm.trained())
    declared = set(first.pools)
    found = set().union(*map(axes_moving_outputs, norms))
    remembered = set().union(*map(axes_moving_statistics, norms))
    shown = f"{{{', '.join(in_order(declared))}}}"
    beyond = in_order(found - declared)
    if beyond and not (beyond == [FEATURE] and declared & {BATCH, POSITION}):
        return _broken(
            f"declares pools={shown}, but a position's output changes with "
            f"{' and '.join(_OTHERS[axis] for axis in beyond)}: it pools over "
            f"{' and '.join(beyond)} as well"
        )
    without = in_order(declared - found - remembered)
    if without:
        return _broken(
            f"declares pools={shown}, but an output does not change with "
            f"{' or '.join(_OTHERS[axis] for axis in without)}: it does not pool over "
            f"{' or '.join(without)}"
        )
    more = f"; an output changes with {_OTHERS[FEATURE]} too" if beyond else ""
    return _kept(f"over {axes_in_words(declared).replace(', ', ' and ')}, as declared{more}")


@question("padding", of="norm", claims=(7, 8))
def padding(norm: BareNorm) -> Finding:
    """Are outputs, gradients and statistics of real tokens the same with padding?"""
    for own, mode in ((norm.new(), "training"), (norm.trained().eval(), "eval")):
        x = norm.values(4, 5)
        plain = _with_padding(norm, own, x, None, 0.0)
        for extra, value in ((0, 0.0), (3, 0.0), (6, 1e3)):
            *padded, leaked = _with_padding(norm, own, x, extra, value)
            names = ("outputs", "gradients", "statistics")
            for what, before, after in zip(names, plain, padded, strict=False):
                if differ(before, after):
                    return _broken(
                        f"in {mode} the {what} of real tokens change with padding, or with "
                        "`stream.valid`, which is None without padding: go by `stream.real(x)`"
                    )
            if leaked.any():
                return _broken(f"in {mode} a gradient flows into padding")
    return _kept("outputs, gradients and statistics are the same with and without padding")


def _with_padding(
    norm: BareNorm, own: Norm, x: Tensor, columns: int | None, value: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return outputs, gradients and statistics of real tokens, and the gradient of padding."""
    extra = columns or 0
    other = norm.new().train(own.training)
    other.load_state_dict(own.state_dict())
    length = x.shape[1]
    filler = torch.full((x.shape[0], extra, x.shape[2]), value, dtype=x.dtype)
    valid = (torch.arange(length + extra) < length).expand(x.shape[0], -1)
    wide = torch.cat([x, filler], 1).requires_grad_()
    y = (call_dense(other, wide) if columns is None else call(other, wide, valid))[:, :length]
    (gradient,) = torch.autograd.grad((y * y.detach().cos()).sum(), wide)
    found = torch.cat([torch.zeros(1), *(t.detach().flatten() for t in tables(other).values())])
    return y.detach(), gradient[:, :length], found, gradient[:, length:]


@question("order", of="norm")
def order(norm: BareNorm) -> Finding:
    """Is the output the same when the sequences of a batch change places?"""
    x, valid = norm.tokens()
    places = torch.tensor([2, 0, 3, 1])
    for own in (norm.new(), norm.trained(), norm.trained().eval()):
        y, other = look(own, x, valid)[places], look(own, x[places], valid[places])
        if differ(y[valid[places]], other[valid[places]]):
            mode = "training" if own.training else "eval"
            return _broken(
                f"in {mode} the output of a sequence changes when the sequences of its batch "
                "change places"
            )
    return _kept("the order of a batch's sequences makes no difference")


@question("alone", of="norm", claims=(13, 16))
def alone(norm: BareNorm) -> Finding:
    """Is a sequence's output in eval independent of its batch exactly if the norm says so?"""
    own = norm.trained().eval()
    x, valid = norm.tokens(STEPS + 1)
    together = look(own, x, valid)
    depends = any(
        differ(together[n, real], look(own, x[[n]], valid[[n]])[0, real])
        for n, real in enumerate(valid)
    )
    if depends and own.batch_independent:
        return _broken(
            "in eval the output of a sequence is another alone than in its batch, and "
            "`batch_independent` is True: take running statistics there (RunningNorm), or name "
            f"{BATCH} in `pools`"
        )
    if not depends and not own.batch_independent:
        return _broken(
            "in eval the output of a sequence is the same alone, and `batch_independent` is "
            "False: a norm with running statistics derives from RunningNorm, which knows"
        )
    said = "depends on its batch" if depends else "is the same alone as in a batch"
    return _kept(f"in eval a sequence {said}, as declared")


@question("stepwise", of="norm", claims=(17, 41))
def stepwise(norm: BareNorm) -> Finding:
    """Does decoding token by token give the same as whole sequences exactly if the norm says so?"""
    own = norm.trained().eval()
    x, valid = norm.tokens(STEPS + 1)
    depends = differ(look(own, x, valid)[valid], one_by_one(own, x, valid)[valid])
    if depends and own.incremental:
        return _broken(
            "in eval token by token gives another output than the whole, and `incremental` "
            "is True: name what it pools over in `pools`; positions count from `stream.start`"
        )
    if not depends and not own.incremental:
        return _broken(
            "in eval token by token gives the same output, and `incremental` is False: decoding "
            "would take the slow path for nothing"
        )
    slow = "needs the whole sequence, as declared: decoding takes the slow path"
    return _kept(slow if depends else "in eval tokens may come one at a time, as declared")


@question("gradient", of="norm")
def gradient(norm: BareNorm) -> Finding:
    """Does the backward pass give the gradient of what training computes?"""
    own = norm.new()
    if not own.exact_gradient:
        return Finding.none("it declares exact_gradient=False")
    valid = torch.tensor([[True, True, True], [True, True, False]])
    saved = own.state_dict()

    def output(x: Tensor) -> Tensor:
        other = norm.new()
        other.load_state_dict(saved)
        return call(other, x, valid) * valid[..., None]

    x = norm.values(2, 3).requires_grad_()
    if not torch.autograd.gradcheck(output, x, atol=1e-6, fast_mode=True, raise_exception=False):
        return _broken(
            "the backward pass does not give the gradient of what training computes: if that is "
            "meant, declare exact_gradient = False"
        )
    return _kept("the backward pass gives the gradient of what training computes")


@question("parameters", of="norm")
def parameters(norm: BareNorm) -> Finding:
    """Does a finite gradient reach the input and every parameter?"""
    own = norm.new()
    x, valid = norm.tokens()
    _loss(own, x.requires_grad_(), valid).backward()
    learned = dict(own.named_parameters())
    idle = [name for name, parameter in learned.items() if parameter.grad is None]
    if idle:
        return _broken(
            f"no gradient reaches {', '.join(idle)}, which `forward` does not use: give "
            "`super().__init__` scale=False or shift=False, or use it"
        )
    for name, tensor in {"the input": x, **learned}.items():
        if tensor.grad is None or not tensor.grad.isfinite().all():
            return _broken(f"the gradient of {name} is not finite, or there is none")
    return _kept(f"a finite gradient reaches {', '.join(('the input', *learned))}")


@question("twice", of="norm")
def twice(norm: BareNorm) -> Finding:
    """May the norm be called twice before one backward pass?"""
    own = norm.trained(STEPS // 2)
    begin_step(own, STEPS // 2 + 1)
    pairs = [norm.tokens(seed) for seed in (50, 51)]
    losses = [_loss(own, x.requires_grad_(), valid) for x, valid in pairs]
    try:
        torch.stack(losses).sum().backward()
    except RuntimeError as error:
        text = str(error).partition(":")[0]
        return _broken(
            f"two calls before one backward pass fail ({text}): clone a table that `forward` "
            "reads before it changes"
        )
    if any(x.grad is None or not x.grad.isfinite().all() for x, _ in pairs):
        return _broken("two calls before one backward pass have gradients that are not finite")
    return _kept("may be called twice before one backward pass")


@question("penalty", of="norm")
def penalty(norm: BareNorm) -> Finding:
    """Does what it adds to the loss have a gradient, and come once and in training alone?"""
    own = norm.new()
    begin_step(own, 1)
    x, valid = norm.tokens()
    call(own, x.requires_grad_(), valid)
    price = extra_loss(own)
    if price is None:
        return Finding.none("it adds nothing to the loss")
    if price.ndim or not price.requires_grad or not price.isfinite():
        return _broken("`extra_loss` is no finite scalar with a gradient")
    call(own.eval(), x, valid)
    if extra_loss(own) is not None:
        return _broken("it sets `extra_loss` in eval, where nothing is trained")
    return _kept("adds a scalar to the loss, in training alone")


def _loss(norm: Norm, x: Tensor, valid: Tensor) -> Tensor:
    y = call(norm, x, valid)
    return (y * y.detach().cos())[valid].sum()


@question("saved", of="norm")
def saved(norm: BareNorm) -> Finding:
    """Does eval change nothing, and does training resume bit for bit from the saved state?"""
    own = norm.trained().eval()
    before = state(own)
    run(own, *norm.tokens(STEPS + 1))
    if altered := _altered(before, state(own)):
        return _broken(f"a forward in eval changes {', '.join(altered)}")
    for stop in (3, STEPS - 3):
        own, other = norm.trained(stop), norm.new()
        other.load_state_dict(copy.deepcopy(own.state_dict()))
        at = f"saved after step {stop} and loaded,"
        for number in range(stop + 1, stop + 4):
            pairs = zip(train_step(own, number), train_step(other, number), strict=True)
            for what, (mine, loaded) in zip(("output", "gradient"), pairs, strict=True):
                if not torch.equal(mine, loaded):
                    return _broken(
                        f"{at} its {what} at step {number} is another: what it keeps must be a "
                        "buffer (`keep`, `register_buffer`)"
                    )
        if altered := _altered(state(own), state(other)):
            return _broken(f"{at} {', '.join(altered)} differ")
        x = norm.values(4, 6)
        if not torch.equal(look(own.eval(), x), look(other.eval(), x)):
            return _broken(f"{at} eval gives another output")
    return _kept("eval changes nothing; training resumes bit for bit from the saved state")


@question("running", of="norm", claims=(12, 15))
def running(norm: BareNorm) -> Finding:
    """Can running statistics be bypassed, recalibrated and restored?"""
    own = norm.trained()
    if not remembers(own):
        return Finding.none("it keeps no running statistics")
    model = nn.Sequential(own)
    before = state(own)
    x, valid = norm.tokens(STEPS + 2)
    with batch_statistics(model):
        call(own, x.clone().requires_grad_(), valid)[valid].sum().backward()
    if altered := _altered(before, state(own)):
        return _broken(f"with the statistics of a batch in eval it changes {', '.join(altered)}")
    former = {name: table.clone() for name, table in tables(own).items()}

    def feed() -> None:
        run(own, x, valid)

    with recalibrated(model, feed):
        fresh = {name: table.clone() for name, table in tables(own).items()}
    if not _altered(former, fresh):
        return _broken(
            "recalibration changes nothing: hand the batch's moments to `self.see` unless "
            "`self.regime` is running, and let `enter` move the tables"
        )
    if altered := _altered(before, state(own)):
        return _broken(f"after recalibration {', '.join(altered)} are not as before")
    if (constants := fixed_map(own.eval())) is not None:
        scale, shift = constants
        if differ(look(own, x, valid)[valid], (x * scale + shift)[valid]):
            return _broken("`fixed_map` is not what eval computes")
    return _kept("running statistics can be bypassed, recalibrated and restored")


def _altered(before: dict[str, Tensor], after: dict[str, Tensor]) -> Iterable[str]:
    return [name for name, value in before.items() if not torch.equal(value, after[name])]
