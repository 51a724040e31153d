"""The calls of a model's modules in one forward pass, in order."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from normlab.inspect.foreign.example import Example, Forward, run

Keep = Callable[[str, nn.Module], bool]


@dataclass(frozen=True)
class Call:
    """One call of a module; its tensors are copies, so later changes in place do not show.

    `name` is the module's path, the first one if it has several; the model itself has "".
    """

    name: str
    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any


def record(
    model: nn.Module, example: Example, forward: Forward | None, keep: Keep | None = None
) -> tuple[list[Call], Tensor]:
    """Return the calls of all modules, or those that `keep` selects, and the output looked at.

    Calls are in the order in which they begin. A tensor that several modules see is copied once.
    """
    calls: list[Call | None] = []
    open_: list[tuple[int, tuple[Any, ...], dict[str, Any]]] = []
    copies: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    def copy(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        version = 0 if value.is_inference() else value._version
        _, copied = copies.setdefault((id(value), version), (value, value.detach().clone()))
        return copied

    with ExitStack() as hooks, torch.no_grad():

        def enter(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            open_.append((len(calls), tree_map(copy, args), tree_map(copy, kwargs)))
            calls.append(None)

        def leave(name: str, module: nn.Module, output: Any) -> None:
            number, args, kwargs = open_.pop()
            calls[number] = Call(name, module, args, kwargs, tree_map(copy, output))

        for name, module in model.named_modules():
            if keep is None or keep(name, module):
                before = module.register_forward_pre_hook(enter, with_kwargs=True)
                after = module.register_forward_hook(
                    lambda module, _, output, name=name: leave(name, module, output)
                )
                hooks.callback(before.remove)
                hooks.callback(after.remove)
        output = run(model, example, forward)
    return [each for each in calls if each is not None], output
