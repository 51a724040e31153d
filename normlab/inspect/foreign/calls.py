"""The calls of a model's modules in one forward pass, in order."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from normlab.inspect.foreign.example import Example, Forward, run


@dataclass
class Call:
    """One call of a module; its tensors are copies, safe from later in-place changes.

    `name` is the module's path, the first one if it has several; the model itself has "".
    """

    name: str
    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any = None


def inside(name: str, outer: str) -> bool:
    """Return whether a module's path is inside another's."""
    return name != outer and (not outer or name.startswith(f"{outer}."))


def record(
    model: nn.Module,
    example: Example,
    forward: Forward | None,
    keep: Callable[[str, nn.Module], bool] = lambda name, module: True,
) -> tuple[list[Call], Tensor]:
    """Return the calls of all modules, or those that `keep` selects, and the output to compare.

    Calls are in the order in which they begin. A tensor that several modules see is copied once.
    """
    calls: list[Call] = []
    under_way: list[Call] = []
    copies: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    def copy(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        key = id(value), 0 if value.is_inference() else value._version
        return copies.setdefault(key, (value, value.detach().clone()))[1]

    def enter(name: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        calls.append(Call(name, module, *tree_map(copy, (args, kwargs))))
        under_way.append(calls[-1])

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        under_way.pop().output = tree_map(copy, output)

    with ExitStack() as hooks, torch.no_grad():
        for name, module in model.named_modules():
            if keep(name, module):
                before = module.register_forward_pre_hook(partial(enter, name), with_kwargs=True)
                hooks.callback(before.remove)
                hooks.callback(module.register_forward_hook(leave).remove)
        return calls, run(model, example, forward)
