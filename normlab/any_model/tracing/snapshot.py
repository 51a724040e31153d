"""Records the state of every object reachable from a model, and restores it."""

import random
import sys
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from operator import is_
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_LEAVES = (
    *(str, bytes, int, float, complex, bool, type(None), type, types.ModuleType, range, slice),
    *(types.BuiltinFunctionType, torch.dtype, torch.device, torch.Size, torch.layout),
)
_ONE_WAY = (types.GeneratorType, types.CoroutineType, map, filter, zip, enumerate)
"""Iterators, which cannot be rewound."""
_INNER = ("torch._", "torch.fx", "torch.jit", "torch.distributed", "torch.utils", "torch.cuda")
_STANDARD = sys.stdlib_module_names - {"types", "collections", "functools", "__main__"}
MOST_OBJECTS = 300_000


class Snapshot:
    """What all objects reachable from some roots held when the snapshot was taken.

    It covers the attributes of modules and other objects, with or without `__setattr__`; nested
    dicts, lists, sets and deques; closures; mutable attributes of the modules' own classes; numpy
    arrays; random number generators; and tensors except for their values, which a `Guard` restores.
    `one_way` has the paths of iterators, which cannot be restored.
    """

    def __init__(self, roots: Sequence[tuple[str, Any]]) -> None:
        self.tensors: list[Tensor] = []
        self.one_way: list[str] = []
        self.generators: list[torch.Generator] = []
        self._steps: list[tuple[str, Callable[[], object]]] = []
        # keeps the objects alive, so that their ids are not reused
        self._reached: dict[int, Any] = {}
        todo = [*reversed(roots)]
        while todo and len(self._reached) < MOST_OBJECTS:
            path, value = todo.pop()
            if isinstance(value, _LEAVES) or id(value) in self._reached:
                continue
            self._reached[id(value)] = value
            with suppress(Exception):  # objects may raise anything when they are read
                todo += self._reach(path, value)

    def restore(self) -> list[str]:
        """Restore what has changed; return one line for each object that could not be restored."""
        refused: list[str] = []
        for path, step in self._steps:
            try:
                step()
            except Exception as error:  # objects may raise anything when they are written to
                refused.append(f"{path}: {type(error).__name__}: {error}")
        return refused

    def _reach(self, path: str, value: Any) -> list[tuple[str, Any]]:
        """Add the steps that restore an object; return the objects in it, with their paths."""
        inner: list[tuple[str, Any]] = []
        kind = type(value)
        if isinstance(value, Tensor):
            self._add(path, _tensor(value))
            self.tensors.append(value)
            if value.is_leaf:
                inner.append((f"{path}.grad", value.grad))
            inner.append((path, vars(value)))
        elif isinstance(value, dict):
            base: Any = OrderedDict if isinstance(value, OrderedDict) else dict
            self._add(path, _container(value, base, [*base.items(value)]))
            inner += [(f"{path}.{key}" if path else str(key), x) for key, x in base.items(value)]
        elif isinstance(value, list | deque | set):
            base = next(cls for cls in (list, deque, set) if isinstance(value, cls))
            self._add(path, _container(value, base, [*base.__iter__(value)]))
            inner += [(f"{path}[{n}]", x) for n, x in enumerate(base.__iter__(value))]
        elif isinstance(value, tuple | frozenset):
            inner += [(f"{path}[{n}]", x) for n, x in enumerate(value)]
        elif isinstance(value, np.ndarray):
            self._add(path, _array(value))
        elif states := _random_state(value):
            self._add(path, state_step(*states))
            if isinstance(value, torch.Generator):
                self.generators.append(value)
        elif isinstance(value, _ONE_WAY) or kind.__module__ == "itertools":
            self.one_way.append(f"{path} ({kind.__name__})")
        elif isinstance(value, types.MethodType):
            inner += [(path, value.__self__), (path, value.__func__)]
        elif isinstance(value, partial):
            inner += [(path, value.func), (path, value.args), (path, value.keywords)]
        elif isinstance(value, types.FunctionType):
            for cell in value.__closure__ or ():
                self._add(path, partial(_set_cell, cell, cell.cell_contents))
                inner.append((path, cell.cell_contents))
        elif isinstance(value, nn.Module) or not self._is_foreign(kind):
            inner += self._attributes(path, value)
        return inner

    def _is_foreign(self, kind: type) -> bool:
        """Return whether a class belongs to Python or torch and holds no state of a model."""
        home = kind.__module__
        return home.partition(".")[0] in _STANDARD or home.startswith(_INNER)

    def _attributes(self, path: str, value: Any) -> list[tuple[str, Any]]:
        inner: list[tuple[str, Any]] = []
        if isinstance(value, torch.jit.ScriptModule):
            for name, part in value.named_modules():
                step = partial(_set_mode, part, part.training)
                self._add(f"{path}.{name}" if name else path, step)
            return [(path, x) for x in (*value.parameters(), *value.buffers())]
        if hasattr(value, "__dict__"):
            inner.append((path, vars(value)))
        for cls in type(value).__mro__:
            names = vars(cls).get("__slots__", ())
            for name in [names] if isinstance(names, str) else names:
                descriptor = vars(cls).get(name)
                if isinstance(descriptor, types.MemberDescriptorType) and hasattr(value, name):
                    held = getattr(value, name)
                    self._add(path, partial(_set_slot, descriptor, value, held))
                    inner.append((f"{path}.{name}", held))
            if isinstance(value, nn.Module) and not cls.__module__.startswith("torch."):
                inner += self._class_attributes(cls)
        return inner

    def _class_attributes(self, cls: type) -> list[tuple[str, Any]]:
        """Add steps for the plain values of a module's class, such as a counter of calls."""
        if id(cls) in self._reached:
            return []
        self._reached[id(cls)] = cls
        plain = (bool, int, float, str, list, dict, set, deque, Tensor, np.ndarray, type(None))
        held = {
            name: x
            for name, x in vars(cls).items()
            if isinstance(x, plain) and not name.startswith("__")
        }
        self._add(cls.__name__, partial(_set_class, cls, held))
        return [(f"{cls.__name__}.{name}", x) for name, x in held.items()]

    def _add(self, path: str, step: Callable[[], object]) -> None:
        self._steps.append((path, step))


def _container(value: Any, base: Any, former: list[Any]) -> Callable[[], None]:
    """Return a step that refills a changed container without calling overridden methods."""
    if issubclass(base, dict):
        return _mapping(value, base, former)
    ids, size, write = {*map(id, former)}, len(former), base.update if base is set else base.extend

    def restore() -> None:
        if base.__len__(value) == size and (
            {*map(id, value)} == ids if base is set else all(map(is_, base.__iter__(value), former))
        ):
            return
        base.clear(value)
        write(value, former)

    return restore


def _mapping(value: Any, base: Any, former: list[Any]) -> Callable[[], None]:
    """Return a step that refills a dict; fast, since it runs for many dicts in each pass."""
    size, count = len(former), base.__len__
    keys, values = [item[0] for item in former], [item[1] for item in former]
    get_keys, get_values, write = base.keys, base.values, base.__setitem__

    def restore() -> None:
        if count(value) == size and (
            not size
            or (all(map(is_, get_values(value), values)) and all(map(is_, get_keys(value), keys)))
        ):
            return
        base.clear(value)
        for key, held in former:
            write(value, key, held)

    return restore


def _tensor(x: Tensor) -> Callable[[], None]:
    """Return a step that restores a tensor's storage, gradient and `requires_grad`."""
    data, grad, needs = x.data, x.grad if x.is_leaf else None, x.requires_grad
    is_plain = in_memory(x)
    place = (x.data_ptr(), x.shape, x.dtype, x.stride()) if is_plain else None

    def restore() -> None:
        if is_plain and (x.data_ptr(), x.shape, x.dtype, x.stride()) != place:
            x.data = data
        if x.is_leaf:
            if x.requires_grad != needs:
                x.requires_grad_(needs)
            if x.grad is not grad:
                x.grad = grad

    return restore


def _array(x: np.ndarray) -> Callable[[], None]:
    former = x.copy()
    held = former.tobytes()

    def restore() -> None:
        if x.tobytes() != held:
            x[...] = former

    return restore


def _random_state(value: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]] | None:
    """Return functions that read and set a random number generator's state, or None."""
    if isinstance(value, torch.Generator):
        return value.get_state, value.set_state
    if isinstance(value, random.Random):
        return value.getstate, value.setstate
    if isinstance(value, np.random.RandomState):
        return value.get_state, value.set_state
    if isinstance(value, np.random.Generator):
        bits = value.bit_generator
        return lambda: bits.state, lambda state: setattr(bits, "state", state)
    return None


def state_step(read: Callable[[], Any], write: Callable[[Any], Any]) -> Callable[[], None]:
    """Return a step that writes the present state back if it has changed."""
    former = read()
    held = _comparable(former)

    def restore() -> None:
        if _comparable(read()) != held:
            write(former)

    return restore


def _comparable(state: Any) -> Any:
    if isinstance(state, Tensor):
        return state.cpu().numpy().tobytes()
    if isinstance(state, np.ndarray):
        return state.tobytes()
    # values without objects inside, such as the many integers of Python's generator
    with suppress(TypeError):
        hash(state)
        return state
    if isinstance(state, dict):
        return [(key, _comparable(value)) for key, value in state.items()]
    return [*map(_comparable, state)] if isinstance(state, tuple | list) else state


def _set_mode(module: nn.Module, training: bool) -> None:
    if module.training != training:
        module.training = training


def _set_cell(cell: Any, value: Any) -> None:
    if cell.cell_contents is not value:
        cell.cell_contents = value


def _set_slot(descriptor: Any, owner: Any, value: Any) -> None:
    if descriptor.__get__(owner) is not value:
        descriptor.__set__(owner, value)


def _set_class(cls: type, held: dict[str, Any]) -> None:
    for name, value in held.items():
        if vars(cls).get(name) is not value:
            setattr(cls, name, value)


def in_memory(value: Tensor) -> bool:
    """Return whether a tensor's values can be read from memory."""
    return value.layout == torch.strided and not value.is_meta
