"""Faster kernels for norms, looked up by exact class: a subclass never uses its parent's kernel.

A kernel returns what the norm's `formula` computes, or None if it does not apply. Before it is used
for the first time, its results are compared with the formula's. If you change the formula, or
another method that the norm computes with, they no longer agree, and the norm runs the formula. An
edit that does not change the compared values is not noticed. Compiled code uses no kernels.
"""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from functools import lru_cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from normlab.distributed.process_group import is_main
from normlab.norms.moments import Moments, unchanged, widen
from normlab.norms.ramp import Clock
from normlab.norms.tokens import Tokens

if TYPE_CHECKING:
    from normlab.norms.base import Norm
    from normlab.norms.batch import BatchNorm
    from normlab.norms.layer import LayerNorm
    from normlab.norms.rms import RMSNorm

FAST: dict[type, Callable[[Any, Tensor, Tokens], Tensor | None]] = {}


def kernel_of(norm: type) -> Callable[[Any], Any]:
    """Register a function as the kernel of one class of norms."""

    def register(function: Callable[[Any, Tensor, Tokens], Tensor | None]) -> Any:
        FAST[norm] = function
        return function

    return register


def output(norm: "Norm", x: Float[Tensor, "*_ D"], tokens: Tokens) -> Tensor | None:
    """Return the norm's output, computed by its kernel, or None if no kernel applies."""
    if torch.compiler.is_compiling() or (kernel := FAST.get(type(norm))) is None:
        return None
    return kernel(norm, x, tokens) if agrees(norm) else None


# Whether a kernel agrees with the formula ---------------------------------------------------------

METHODS = (
    *("formula", "training_formula", "prepare", "output", "gain_and_shift"),
    *("moments", "estimates", "update", "enter"),
)
"""The methods that a norm computes with. If one is replaced, its kernel is compared again."""

# number of steps of the compared run: its first and last step are in early and late phases
_LAST = 1_000_000
_TOLERANCE = 1e-9  # relative to the largest value, or absolute if all are below 1; in float64
_AGREEMENTS: dict[tuple[Any, ...], bool] = {}
_NAMED: set[tuple[Any, ...]] = set()  # kernels whose disagreement has been reported


def agrees(norm: "Norm") -> bool:
    """Return whether the kernel for a norm's class and settings agrees with its formula.

    The first call in a process compares the outputs, gradients and statistics of two training
    steps, and the output in evaluation, which takes a few milliseconds. If they differ, it prints a
    one-line warning.
    """
    kind = type(norm)
    methods, settings = _getters(kind)
    if not vars(norm).keys().isdisjoint(METHODS):
        return False  # this norm overrides a method of its class
    key = kind, methods(kind), settings(norm)
    try:
        return _AGREEMENTS[key]
    except TypeError:  # a setting is not hashable
        return False
    except KeyError:
        _AGREEMENTS[key] = True  # during the comparison, so that one side uses the kernel
    # A new thread has none of the caller's modes: autocast, no_grad, devices, tracing, hooks.
    with ThreadPoolExecutor(1) as thread:
        values = {name: getattr(norm, name) for name in _settings(kind)}
        _AGREEMENTS[key] = thread.submit(_same, kind, values).result()
    disagree = key[:2]  # one warning for all settings
    if not _AGREEMENTS[key] and disagree not in _NAMED and is_main():
        _NAMED.add(disagree)
        line = f"the kernel of {kind.__name__} disagrees with its formula, so the formula runs"
        print(line, file=sys.stderr)
    return _AGREEMENTS[key]


@lru_cache
def _getters(kind: type) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return two functions: one reads the methods of a class, the other a norm's settings."""
    methods = [name for name in METHODS if hasattr(kind, name)]
    return attrgetter(*methods), attrgetter(*_settings(kind))


def _settings(kind: Any) -> list[str]:
    """Return the names of the settings that a norm of this class is built from."""
    return [field.name for field in fields(kind) if field.init]


def _same(kind: type, settings: dict[str, Any]) -> bool:
    """Return whether a norm with a kernel gives the same results as its formula.

    The formula runs in an instance of an empty subclass, which has no kernel.
    """
    try:
        with torch.random.fork_rng(devices=[]):
            kinds = kind, type(kind.__name__, (kind,), {})
            quick, plain = (_values(each(**settings).double()) for each in kinds)
    except Exception:  # an error in the formula is raised where the norm is used
        return False
    return all(map(_close, quick, plain))


def _close(quick: Tensor, plain: Tensor) -> bool:
    if quick.shape != plain.shape or quick.numel() == 0:
        return quick.shape == plain.shape
    # of a single feature, layer norm's formula returns exactly 0, and the kernel rounding errors
    return bool((quick - plain).abs().max() <= _TOLERANCE * plain.abs().max().clamp(min=1))


def _values(norm: "Norm") -> list[Tensor]:
    """Return the outputs, gradients and statistics of two steps, then the output in evaluation.

    Tokens and features differ in size by powers of ten, so that `eps` matters for some of them. One
    value is by far the largest of its token and of its feature, as large as a norm can make it.
    """
    if (pool := getattr(norm, "pool", None)) is not None:
        pool.summed = unchanged  # sums over this process only
    if isinstance(norm.weight, nn.Parameter):
        nn.init.uniform_(norm.weight, 0.5, 2, generator=torch.Generator().manual_seed(0))
    shape = 4, max(4, min(32, 8192 // norm.dim)), norm.dim
    valid = torch.arange(shape[1]) < torch.tensor([[shape[1]], [shape[1]], [2], [3]])
    tokens, values = Tokens.collated(valid), []
    wave = torch.arange(valid.numel() * norm.dim, dtype=torch.float64).mul(1.7).sin().view(shape)
    sizes = torch.linspace(-4, 1, valid.numel()).view(*valid.shape, 1)
    x = wave * 10.0 ** (sizes + torch.linspace(-1, 1, norm.dim)) + 1
    x[0, 0, 0] = 100
    for step in (1, _LAST):
        norm.begin_step(Clock(step, _LAST))
        x = (x * 1.5 + wave).detach().requires_grad_()
        y = norm(x, tokens)
        (y * wave.cos())[valid].sum().backward()
        assert x.grad is not None
        values += [y[valid].detach(), x.grad[valid]]
    values += [p.grad for p in norm.parameters() if p.grad is not None]
    values += [table.double() for table in norm.state_dict().values()]
    with torch.no_grad():
        return [*values, norm.eval()(x, tokens)[valid]]


# The kernels --------------------------------------------------------------------------------------


def layer_norm(norm: "LayerNorm", x: Tensor, tokens: Tokens) -> Tensor | None:
    """Return layer norm's output from torch's kernel, or None if `detach` changes the gradient."""
    if norm.detach != "none":
        return None
    wide, weight, bias = widen(x, norm.weight, norm.bias)
    learned = (weight, bias) if norm.affine else (None, None)
    return F.layer_norm(wide, (norm.dim,), *learned, norm.eps).to(x.dtype)


def rms_norm(norm: "RMSNorm", x: Tensor, tokens: Tokens) -> Tensor | None:
    """Return RMS norm's output, or None with eps outside the root or `share` below 1."""
    if not norm.eps_inside or norm.share < 1:
        return None
    wide, gain = widen(x, norm.gain.expand(norm.dim))
    return root_mean_square(wide, gain if norm.affine else None, norm.eps).to(x.dtype)


def root_mean_square(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """Return `weight x / sqrt(mean(x^2) + eps)` over the last axis.

    torch has a fused kernel for RMS norm only on CUDA. On other devices, it would run many small
    operators, so `_RootMeanSquare` is used.
    """
    if x.is_cuda:
        return F.rms_norm(x, x.shape[-1:], weight, eps)
    return _RootMeanSquare.apply(x, weight, eps)


class _RootMeanSquare(torch.autograd.Function):
    """RMS norm with the backward pass of torch's layer norm.

        forward     y = weight x r,  r = 1 / sqrt(mean(x^2) + eps)
        backward    dx = r (g - x r mean(g x r)),  g = weight dy;  dweight = sum(dy x r)

    Given a mean of 0, layer norm's backward pass returns `dx - r mean(g)`.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
        inverse = (x.square().mean(-1, keepdim=True) + eps).rsqrt()
        ctx.save_for_backward(x, weight, inverse)
        y = x * inverse
        return y if weight is None else y.mul_(weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        x, weight, inverse = ctx.saved_tensors
        zero, needed = torch.zeros_like(inverse), [True, weight is not None, False]
        dx, dweight, _ = torch.ops.aten.native_layer_norm_backward(
            grad.contiguous(), x, x.shape[-1:], zero, inverse, weight, None, needed
        )
        pull = (grad if weight is None else grad * weight).mean(-1, keepdim=True)
        return dx.add_(inverse * pull), dweight, None


def batch_norm(norm: "BatchNorm", x: Tensor, tokens: Tokens) -> Tensor | None:
    """Return batch norm's output, or None if torch's kernel does not apply.

    With running statistics, it always applies. With batch statistics, it applies if all real tokens
    of the process share them, in training no other process does, and padding is not filled.
    """
    pool, count = norm.pool, tokens.known(x)
    (wide,) = widen(x)
    weight, bias = norm.weight.to(wide), norm.bias.to(wide)
    mean, var = norm.running_mean[0], norm.running_var[0]
    if norm.regime == "running":
        tables = mean.to(wide), var.to(wide)
        y = F.batch_norm(_image(wide.flatten(0, 1)), *tables, weight, bias, False, 0.0, norm.eps)
        return _tokens(y).view(x.shape).to(x.dtype)
    if count is None or count < 2 or not pool.plain or norm.padding == "fill":
        return None
    if norm.training and (pool.over_group is not unchanged or pool.divided):
        return None
    packed = tokens.pack(wide)
    enters = norm.regime == "train" and not norm.watchers and not norm.by_position
    enters = enters and norm.unbiased and mean.dtype == wide.dtype
    if enters:  # torch updates the running variance with the unbiased variance
        y, *statistics = torch.ops.aten._native_batch_norm_legit(
            _image(packed), weight, bias, mean, var, True, norm.momentum, norm.eps
        )
        norm.last_batch, norm.last_batch_row = partial(moments, *statistics, norm.eps, count), 0
        norm.last_counts = count
    else:
        y, *statistics = torch.ops.aten._native_batch_norm_legit.no_stats(
            _image(packed), weight, bias, True, 0.0, norm.eps
        )
        mean, inverse = statistics
        norm.remember(moments(mean, inverse, norm.eps, count))
    return tokens.unpack(_tokens(y).to(x.dtype), x.shape)


def _image(tokens: Float[Tensor, "N D"]) -> Float[Tensor, "1 D N 1"]:
    """View tokens as the pixels of an image with channels last, without a copy."""
    return tokens[None, :, None].permute(0, 3, 1, 2)


def _tokens(image: Float[Tensor, "1 D N 1"]) -> Float[Tensor, "N D"]:
    return image.permute(0, 2, 3, 1).view(-1, image.shape[1])


@torch.no_grad()
def moments(mean: Tensor, inverse: Tensor, eps: float, count: int) -> Moments:
    """Return the moments `[1, D]` of a batch, given the inverse of its standard deviation."""
    var = (inverse.square().reciprocal() - eps).clamp_(min=0)
    counted = mean.new_full((1, 1), count)
    return Moments(mean[None].detach(), var[None].detach(), counted, counted)
