"""Checks of the backward pass, and of what a norm adds to the loss."""

import torch
from torch import Tensor

from normlab.contract.subject import (
    STEPS,
    Subject,
    Verdict,
    exempt,
    ok,
    seeded,
    violated,
)
from normlab.norms.base import Norm, Stream
from normlab.norms.model import ModelNorms


def gradient(subject: Subject) -> Verdict:
    """Compare the gradient in training with differences of the output."""
    norm = subject.new()
    if not norm.exact_gradient:
        return exempt("it declares exact_gradient=False")
    valid = torch.tensor([[True, True, True], [True, True, False]])
    saved = norm.state_dict()

    def output(x: Tensor) -> Tensor:
        other = subject.new()
        other.load_state_dict(saved)
        return seeded(other, x, Stream(valid)) * valid[..., None]

    x = subject.values(2, 3).requires_grad_()
    if not torch.autograd.gradcheck(output, x, atol=1e-6, fast_mode=True, raise_exception=False):
        return violated(
            "the backward pass does not give the gradient of what training computes: if that is "
            "meant, declare exact_gradient = False"
        )
    return ok("the backward pass gives the gradient of what training computes")


def parameters(subject: Subject) -> Verdict:
    """Ask for a finite gradient of the input and of every parameter."""
    norm = subject.new()
    x, stream = subject.tokens()
    _loss(norm, x.requires_grad_(), stream).backward()
    learned = dict(norm.named_parameters())
    idle = [name for name, parameter in learned.items() if parameter.grad is None]
    if idle:
        return violated(
            f"no gradient reaches {', '.join(idle)}, which `forward` does not use: give "
            "`super().__init__` scale=False or shift=False, or use it"
        )
    for name, tensor in {"the input": x, **learned}.items():
        if tensor.grad is None or not tensor.grad.isfinite().all():
            return violated(f"the gradient of {name} is not finite, or there is none")
    return ok(f"a finite gradient reaches {', '.join(('the input', *learned))}")


def twice(subject: Subject) -> Verdict:
    """Call a norm twice before one backward pass: gradients are those of two calls."""
    norm = subject.trained(STEPS // 2)
    ModelNorms(torch.nn.Sequential(norm)).begin_step(STEPS // 2 + 1, STEPS)
    pairs = [subject.tokens(seed) for seed in (50, 51)]
    losses = [_loss(norm, x.requires_grad_(), stream) for x, stream in pairs]
    try:
        torch.stack(losses).sum().backward()
    except RuntimeError as error:
        text = str(error).partition(":")[0]
        return violated(
            f"two calls before one backward pass fail ({text}): clone a table that `forward` "
            "reads before it changes"
        )
    grads = [x.grad for x, _ in pairs]
    if any(grad is None or not grad.isfinite().all() for grad in grads):
        return violated("two calls before one backward pass have gradients that are not finite")
    return ok("may be called twice before one backward pass")


def penalty(subject: Subject) -> Verdict:
    """Ask that what is added to the loss has a gradient, comes once and in training alone."""
    norm = subject.new()
    norm.begin_step(1, STEPS)
    x, stream = subject.tokens()
    seeded(norm, x.requires_grad_(), stream)
    price = norm.penalty()
    if price is None:
        return exempt("it adds nothing to the loss")
    if price.ndim or not price.requires_grad or not price.isfinite():
        return violated("`penalty` returns no finite scalar with a gradient")
    if norm.penalty() is not None:
        return violated("`penalty` gives the same price twice: forget it when it is given")
    seeded(norm.eval(), x, stream)
    if norm.penalty() is not None:
        return violated("`penalty` asks for a price in eval, where nothing is trained")
    return ok("adds a scalar to the loss, once and in training alone")


def _loss(norm: Norm, x: Tensor, stream: Stream) -> Tensor:
    y = seeded(norm, x, stream)
    return (y * y.detach().cos())[stream.real(x)].sum()
