"""The contract of a norm: what the rest of the package takes for granted about every norm.

`normlab norm check` asks these questions, and the tests hold all options of `configs/norm` to them.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normlab.inspect.axes import Sees, axes_in_words, axes_moving_statistics, dependence, in_order
from normlab.inspect.question import Finding, question, questions
from normlab.inspect.subject import (
    AXES,
    STEPS,
    BareNorm,
    begin_step,
    call,
    differ,
    look,
    loss,
    one_by_one,
    remembers,
    run,
    state,
    tables,
    train_step,
)
from normlab.inspect.worked import PADDED
from normlab.norms.base import Norm, normalized_by
from normlab.norms.recalibration import recalibrated

BATCH, POSITION, FEATURE = AXES
_WIDEN = "take it from `widen(x)` of normlab/norms/pool.py"
Ask = Callable[[BareNorm], str | Finding]


def examine(norm: BareNorm) -> Iterator[tuple[str, Finding]]:
    """Yield the name of each question and its answer."""
    for asked in questions("norm"):
        yield asked.name, asked.ask(norm)


class Broken(Exception):
    """A part of the contract is not kept; the message says which, and how to keep it."""


def must(holds: object, otherwise: str) -> None:
    """Raise Broken with a text unless something holds."""
    if not holds:
        raise Broken(otherwise)


def contract(name: str) -> Callable[[Ask], Callable[[BareNorm], Finding]]:
    """Register a function that says what is kept, or raises; any error breaks the contract."""

    def register(ask: Ask) -> Callable[[BareNorm], Finding]:
        @wraps(ask)
        def asked(norm: BareNorm) -> Finding:
            try:
                kept = ask(norm)
                return kept if isinstance(kept, Finding) else Finding(kept, holds=True)
            except Broken as broken:
                return Finding(str(broken), holds=False)
            except Exception as error:
                text = str(error).strip().partition("\n")[0]
                said = f"raises {type(error).__name__}: {text}{norm.line_of(error)}"
                return Finding(said, holds=False)

        return question(name, of="norm")(asked)

    return register


@contract("shape")
def shape(norm: BareNorm) -> str:
    """Does the output have the input's shape, is it finite, and does the input stay as it was?"""
    for size in ((4, 6), (1, 6), (3, 1)):
        x = norm.values(*size)
        before = x.clone()
        y = call(norm.new(), x)
        given, got = (" x ".join(map(str, t.shape)) for t in (x, y))
        must(given == got, f"of {given} values it makes {got}: the output has the input's shape")
        must(torch.equal(x, before), "writes into its input, which the residual branch reads too")
        finite = y.isfinite().all()
        must(finite, f"makes NaN or infinity of {size[0]} sequences of {size[1]} tokens")
    for value, training in product((0.0, 3.0), (True, False)):
        x = torch.full((4, 6, norm.width), value, dtype=torch.float64)
        finite = call(norm.new().train(training), x).isfinite().all()
        must(finite, f"makes NaN or infinity where every value is {value:g}: bound its divisor")
    return "the input's shape, finite; the input stays as it was"


@contract("precision")
def precision(norm: BareNorm) -> str:
    """Does the output have the input's dtype, and do statistics survive bf16?

    A mean of 300 with a deviation of 3 is lost in bf16, whose steps are 2 there.
    """
    x, valid = norm.tokens()
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        own = norm.new(torch.float64 if dtype == torch.float64 else torch.float32)
        made = call(own, x.to(dtype), valid).dtype
        given, got = (str(d).removeprefix("torch.") for d in (dtype, made))
        must(given == got, f"of {given} values it makes {got}: end `forward` with `.to(x.dtype)`")
    own = norm.new(torch.float32)
    exact = copy.deepcopy(own)
    x = (x + 300).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = call(own, x, valid).float()[valid]
    close = torch.allclose(y, call(exact, x.float(), valid)[valid], rtol=1e-2, atol=1e-2)
    must(close, f"bf16 values of mean 300 lose their statistics: {_WIDEN}, in float32")
    wrong = [name for name, table in tables(own).items() if table.dtype != torch.float32]
    must(not wrong, f"keeps {', '.join(wrong)} in another dtype than float32")
    return "the input's dtype; statistics in float32 under bf16"


@contract("pools")
def pools(norm: BareNorm) -> str:
    """Does it pool over the axes that it declares, at both ends of training?"""
    norms = (norm.new(), norm.trained())
    declared = set(norms[0].pools)
    found = set().union(*(Sees.of(dependence(each, features=2)).axes for each in norms))
    remembered = set().union(*map(axes_moving_statistics, norms))
    said = f"declares pools={{{', '.join(in_order(declared))}}}, but an output"
    beyond, without = found - declared, declared - found - remembered
    mixes = beyond == {FEATURE} and bool(declared & {BATCH, POSITION})
    more, less = (" and ".join(in_order(axes)) for axes in (beyond, without))
    must(not beyond or mixes, f"{said} changes along {more} too: name all axes that it pools over")
    must(not without, f"{said} does not change along {less}: it does not pool over it")
    also = "; an output changes with its token's other features too" if beyond else ""
    return f"over {axes_in_words(declared).replace(', ', ' and ')}, as declared{also}"


@contract("padding")
def padding(norm: BareNorm) -> str:
    """Are outputs, gradients and statistics of real tokens the same with padding?"""
    x = norm.values(4, 5)
    for own, mode in ((norm.new(), "training"), (norm.trained().eval(), "eval")):
        plain = _with_padding(norm, own, x, None, 0.0)
        for extra, value in ((0, 0.0), (3, 0.0), (6, 1e3)):
            *padded, leaked = _with_padding(norm, own, x, extra, value)
            names = ("outputs", "gradients", "statistics")
            pairs = zip(names, plain, padded, strict=False)
            moved = [what for what, before, after in pairs if differ(before, after)]
            must(
                not moved,
                f"in {mode} the {' and '.join(moved)} of real tokens change with padding, or with "
                "`stream.valid`, which is None without padding: go by `stream.real(x)`",
            )
            must(not leaked.any(), f"in {mode} a gradient flows into padding")
    return "outputs, gradients and statistics are the same with and without padding"


def _with_padding(
    norm: BareNorm, own: Norm, x: Tensor, columns: int | None, value: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return outputs, gradients and statistics of real tokens, and the gradient of padding."""
    other, length = _copied(norm, own).train(own.training), x.shape[1]
    wide = F.pad(x, (0, 0, 0, columns or 0), value=value).requires_grad_()
    valid = (torch.arange(wide.shape[1]) < length).expand(len(x), -1)
    y = call(other, wide, None if columns is None else valid, dense=columns is None)[:, :length]
    (gradient,) = torch.autograd.grad((y * y.detach().cos()).sum(), wide)
    found = torch.cat([torch.zeros(1), *(t.detach().flatten() for t in tables(other).values())])
    return y.detach(), gradient[:, :length], found, gradient[:, length:]


def _copied(norm: BareNorm, own: Norm) -> Norm:
    """Return a new norm with the state of another, by way of what a checkpoint holds."""
    other = norm.new()
    other.load_state_dict(copy.deepcopy(own.state_dict()))
    return other


@contract("alone")
def alone(norm: BareNorm) -> str:
    """Is a sequence's output in eval independent of its batch exactly if the norm says so?"""
    own = norm.trained().eval()
    x, valid = norm.tokens(STEPS + 1)
    single = torch.cat([look(own, x[[n]], valid[[n]])[0, real] for n, real in enumerate(valid)])
    depends = differ(look(own, x, valid)[valid], single)
    must(
        not (depends and own.batch_independent),
        "in eval the output of a sequence is another alone than in its batch, and "
        "`batch_independent` is True: take running statistics there (RunningNorm), or name "
        f"{BATCH} in `pools`",
    )
    must(
        depends or own.batch_independent,
        "in eval the output of a sequence is the same alone, and `batch_independent` is False: a "
        "norm with running statistics derives from RunningNorm, which knows",
    )
    said = "depends on its batch" if depends else "is the same alone as in a batch"
    return f"in eval a sequence {said}, as declared"


@contract("stepwise")
def stepwise(norm: BareNorm) -> str:
    """Does decoding token by token give the same as whole sequences exactly if the norm says so?"""
    own = norm.trained().eval()
    x, valid = norm.tokens(STEPS + 1)
    depends = differ(look(own, x, valid)[valid], one_by_one(own, x, valid)[valid])
    must(
        not (depends and own.incremental),
        "in eval token by token gives another output than the whole, and `incremental` is True: "
        "name what it pools over in `pools`; positions count from `stream.start`",
    )
    must(
        depends or own.incremental,
        "in eval token by token gives the same output, and `incremental` is False: decoding would "
        "take the slow path for nothing",
    )
    if depends:
        return "needs the whole sequence, as declared: decoding takes the slow path"
    return "in eval tokens may come one at a time, as declared"


@contract("gradient")
def gradient(norm: BareNorm) -> str:
    """Does a finite gradient reach the input and every parameter, and is it exact if declared?"""
    own = norm.new()
    x, valid = norm.tokens()
    loss(call(own, x.requires_grad_(), valid), valid).backward()
    learned = dict(own.named_parameters())
    idle = [name for name, parameter in learned.items() if parameter.grad is None]
    cure = "give `super().__init__` scale=False or shift=False, or use it in `forward`"
    must(not idle, f"no gradient reaches {', '.join(idle)}: {cure}")
    for name, tensor in {"the input": x, **learned}.items():
        finite = tensor.grad is not None and tensor.grad.isfinite().all()
        must(finite, f"the gradient of {name} is not finite, or there is none")
    reached = f"a finite gradient reaches {', '.join(('the input', *learned))}"
    if not own.exact_gradient:
        return f"{reached}; it declares exact_gradient=False"
    own, valid = norm.new(), PADDED
    right = torch.autograd.gradcheck(
        lambda x: call(_copied(norm, own), x, valid) * valid[..., None],
        norm.values(2, 3).requires_grad_(),
        atol=1e-6,
        fast_mode=True,
        raise_exception=False,
    )
    must(right, "the backward pass is not exact: if that is meant, declare exact_gradient = False")
    return f"{reached}, the one of what training computes"


@contract("twice")
def twice(norm: BareNorm) -> str:
    """May the norm be called twice before one backward pass?"""
    own = norm.trained(STEPS // 2)
    begin_step(own, STEPS // 2 + 1)
    pairs = [norm.tokens(seed) for seed in (50, 51)]
    losses = [loss(call(own, x.requires_grad_(), valid), valid) for x, valid in pairs]
    try:
        torch.stack(losses).sum().backward()
    except RuntimeError as error:
        said = f"two calls before one backward pass fail ({str(error).partition(':')[0]})"
        raise Broken(f"{said}: clone a table that `forward` reads before it changes") from None
    finite = all(x.grad is not None and x.grad.isfinite().all() for x, _ in pairs)
    must(finite, "two calls before one backward pass have gradients that are not finite")
    return "may be called twice before one backward pass"


@contract("penalty")
def penalty(norm: BareNorm) -> str | Finding:
    """Does what it adds to the loss have a gradient, and come once and in training alone?"""
    own = norm.new()
    begin_step(own, 1)
    x, valid = norm.tokens()
    call(own, x.requires_grad_(), valid)
    price, own.extra_loss = own.extra_loss, None
    if price is None:
        return Finding.none("it adds nothing to the loss")
    right = not price.ndim and price.requires_grad and price.isfinite()
    must(right, "`extra_loss` is no finite scalar with a gradient")
    evaluated = own.eval()
    call(evaluated, x, valid)
    must(evaluated.extra_loss is None, "it sets `extra_loss` in eval, where nothing is trained")
    return "adds a scalar to the loss, in training alone"


@contract("saved")
def saved(norm: BareNorm) -> str:
    """Does eval change nothing, and does training resume bit for bit from the saved state?"""
    own = norm.trained().eval()
    before = state(own)
    run(own, *norm.tokens(STEPS + 1))
    altered = _altered(before, state(own))
    must(not altered, f"a forward in eval changes {altered}")
    for stop in (3, STEPS - 3):
        own = norm.trained(stop)
        other = _copied(norm, own)
        at = f"saved after step {stop} and loaded,"
        for number in range(stop + 1, stop + 4):
            pairs = zip(train_step(own, number), train_step(other, number), strict=True)
            for what, (mine, loaded) in zip(("output", "gradient"), pairs, strict=True):
                said = f"{at} its {what} at step {number} is another: what it keeps must be"
                must(torch.equal(mine, loaded), f"{said} a buffer (`keep`, `register_buffer`)")
        altered = _altered(state(own), state(other))
        must(not altered, f"{at} {altered} differ")
        x = norm.values(4, 6)
        same = torch.equal(look(own.eval(), x), look(other.eval(), x))
        must(same, f"{at} eval gives another output")
    return "eval changes nothing; training resumes bit for bit from the saved state"


@contract("running")
def running(norm: BareNorm) -> str | Finding:
    """Can running statistics be bypassed, recalibrated and restored?"""
    own = norm.trained()
    if not remembers(own):
        return Finding.none("it keeps no running statistics")
    model = nn.Sequential(own)
    before = state(own)
    x, valid = norm.tokens(STEPS + 2)
    with normalized_by(model, "batch"):
        call(own, x.clone().requires_grad_(), valid)[valid].sum().backward()
    altered = _altered(before, state(own))
    must(not altered, f"with the statistics of a batch in eval it changes {altered}")
    former = {name: table.clone() for name, table in tables(own).items()}

    def feed() -> None:
        run(own, x, valid)

    with recalibrated(model, feed):
        moved = _altered(former, tables(own))
    must(
        moved,
        "recalibration changes nothing: hand the batch's moments to `self.see` unless "
        "`self.regime` is running, and let `enter` move the tables",
    )
    altered = _altered(before, state(own))
    must(not altered, f"after recalibration {altered} are not as before")
    return "running statistics can be bypassed, recalibrated and restored"


def _altered(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> str:
    """Name the tensors that differ."""
    return ", ".join(name for name, x in before.items() if not torch.equal(x, after[name]))
