"""Hooks for models that contain scripted modules, which do not support hooks themselves.

torch runs the submodules of a scripted module without Python. So in scripted parts, only the
outermost module, which Python calls, is recorded and examined. The norms inside it are reported as
not examined.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

Before = Callable[[str, nn.Module, Any, Any], None]
After = Callable[[str, nn.Module, Any, Any, Any], Any]


def is_scripted(module: nn.Module) -> bool:
    """Return whether a module was made by torch.jit.script or torch.jit.trace."""
    return isinstance(module, torch.jit.ScriptModule)


def inside_script(model: nn.Module) -> dict[str, nn.Module]:
    """Return the scripted modules that are inside another one, keyed by path."""
    parts = {name: module for name, module in model.named_modules() if is_scripted(module)}
    return {
        name: module
        for name, module in parts.items()
        if any(name.startswith(f"{outer}.") or (name and not outer) for outer in parts)
    }


@contextmanager
def hooked(
    modules: Mapping[str, nn.Module], before: Before | None, after: After | None
) -> Iterator[None]:
    """Call `before` and `after` at each call of the modules, which are keyed by path.

    These are `before(path, module, args, kwargs)` and `after(path, module, args, kwargs, output)`.
    The value that `after` returns replaces the output, unless it is None. For scripted modules,
    torch's global hooks are used, which pass no kwargs to `before`.
    """
    paths = {id(module): name for name, module in modules.items() if is_scripted(module)}

    def enter(module: nn.Module, args: Any) -> None:
        if before and (name := paths.get(id(module))) is not None:
            before(name, module, args, {})

    def leave(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        name = paths.get(id(module))
        return after(name, module, args, kwargs, output) if after and name is not None else None

    with ExitStack() as hooks:
        for name, module in modules.items():
            if is_scripted(module):
                continue
            if before:
                hook = module.register_forward_pre_hook(partial(before, name), with_kwargs=True)
                hooks.callback(hook.remove)
            if after:
                hook = module.register_forward_hook(partial(after, name), with_kwargs=True)
                hooks.callback(hook.remove)
        if paths:
            hooks.callback(register_module_forward_pre_hook(enter).remove)
            hooks.callback(register_module_forward_hook(leave, with_kwargs=True).remove)
        yield
