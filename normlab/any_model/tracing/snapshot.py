"""Records the state of every object reachable from a model, and restores it."""

import random
import sys
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial, singledispatchmethod
from operator import is_
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_LEAVES = (
    *(str, bytes, int, float, complex, bool, type(None), type, types.ModuleType, range, slice),
    *(types.BuiltinFunctionType, torch.dtype, torch.device, torch.Size, torch.layout),
)
_INNER = ("torch._", "torch.fx", "torch.jit", "torch.distributed", "torch.utils", "torch.cuda")
_STANDARD = sys.stdlib_module_names - {"types", "collections", "functools", "__main__"}
MOST_OBJECTS = 300_000
Inner = list[tuple[str, Any]]
"""The objects inside an object, with their paths."""


class Snapshot:
    """The contents of all objects reachable from some roots when the snapshot was taken.

    It covers the attributes of modules and other objects, including slots; nested dicts, lists,
    sets and deques; closures; plain values in the modules' own classes; numpy arrays; random number
    generators; and tensors, except for their values, which a `Guard` restores.

    `one_way` has the paths of iterators, which cannot be restored. `unread` has the paths of
    objects that raise an exception when they are read, with the exception. If there are more than
    `MOST_OBJECTS` objects, the rest is not read, and the last entry of `unread` says so.
    """

    def __init__(self, roots: Sequence[tuple[str, Any]]) -> None:
        self.tensors: list[Tensor] = []
        self.one_way: list[str] = []
        self.unread: list[str] = []
        self.generators: list[torch.Generator] = []
        self._steps: list[tuple[str, Callable[[], object]]] = []
        # keeps the objects alive, so that their ids are not reused
        self._reached: dict[int, Any] = {}
        todo = [*reversed(roots)]
        while todo and len(self._reached) < MOST_OBJECTS:
            path, value = todo.pop()
            if not self._is_new(value):
                continue
            self._reached[id(value)] = value
            try:
                todo += self._reach(value, path)
            except Exception as error:  # objects may raise anything when they are read
                self.unread.append(f"{path} ({type(error).__name__}: {error})")
        if unreached := [path for path, value in todo if self._is_new(value)]:
            self.unread.append(f"{unreached[-1]} and more (after {MOST_OBJECTS:,} objects)")

    def _is_new(self, value: object) -> bool:
        return not isinstance(value, _LEAVES) and id(value) not in self._reached

    def restore(self) -> list[str]:
        """Restore what has changed. Return one line for each object that could not be restored."""
        refused: list[str] = []
        for path, step in self._steps:
            try:
                step()
            except Exception as error:  # objects may raise anything when they are written to
                refused.append(f"{path}: {type(error).__name__}: {error}")
        return refused

    @singledispatchmethod
    def _reach(self, value: Any, path: str) -> Inner:
        """Add the steps that restore an object. Return the objects in it, with their paths.

        There is one method per class. The attributes of any other object are read if it is a module
        or if neither Python nor torch defines its class.
        """
        kind = type(value)
        if kind.__module__ == "itertools":
            return self._note_iterator(value, path)
        return self._attributes(path, value) if not _is_foreign(kind) else []

    @_reach.register
    def _(self, value: nn.Module, path: str) -> Inner:
        return self._attributes(path, value)

    @_reach.register
    def _(self, value: Tensor, path: str) -> Inner:
        self._add(path, _tensor(value))
        self.tensors.append(value)
        return [*([(f"{path}.grad", value.grad)] if value.is_leaf else []), (path, vars(value))]

    @_reach.register
    def _(self, value: dict, path: str) -> Inner:
        base: Any = OrderedDict if isinstance(value, OrderedDict) else dict
        self._add(path, _container(value, base, [*base.items(value)]))
        return [(f"{path}.{key}" if path else str(key), x) for key, x in base.items(value)]

    @_reach.register
    def _(self, value: list | deque | set, path: str) -> Inner:
        base: Any = next(cls for cls in (list, deque, set) if isinstance(value, cls))
        self._add(path, _container(value, base, [*base.__iter__(value)]))
        return _numbered(path, base.__iter__(value))

    @_reach.register
    def _(self, value: tuple | frozenset, path: str) -> Inner:
        return _numbered(path, value)

    @_reach.register
    def _(self, value: np.ndarray, path: str) -> Inner:
        self._add(path, _array(value))
        return []

    @_reach.register
    def _(self, value: torch.Generator, path: str) -> Inner:
        self.generators.append(value)
        self._add(path, state_step(value.get_state, value.set_state))
        return []

    @_reach.register
    def _(self, value: random.Random, path: str) -> Inner:
        self._add(path, state_step(value.getstate, value.setstate))
        return []

    @_reach.register
    def _(self, value: np.random.RandomState, path: str) -> Inner:
        self._add(path, state_step(value.get_state, value.set_state))
        return []

    @_reach.register
    def _(self, value: np.random.Generator, path: str) -> Inner:
        bits = value.bit_generator
        self._add(path, state_step(lambda: bits.state, partial(setattr, bits, "state")))
        return []

    @_reach.register
    def _(self, value: types.MethodType, path: str) -> Inner:
        return [(path, value.__self__), (path, value.__func__)]

    @_reach.register
    def _(self, value: partial, path: str) -> Inner:
        return [(path, value.func), (path, value.args), (path, value.keywords)]

    @_reach.register
    def _(self, value: types.FunctionType, path: str) -> Inner:
        cells = [cell for cell in value.__closure__ or () if _is_filled(cell)]
        for cell in cells:
            self._add(path, partial(_set_cell, cell, cell.cell_contents))
        return [(path, cell.cell_contents) for cell in cells]

    @_reach.register(types.GeneratorType)
    @_reach.register(types.CoroutineType)
    @_reach.register(map)
    @_reach.register(filter)
    @_reach.register(zip)
    @_reach.register(enumerate)
    def _note_iterator(self, value: Any, path: str) -> Inner:
        """Note an iterator, which cannot be rewound."""
        self.one_way.append(f"{path} ({type(value).__name__})")
        return []

    def _attributes(self, path: str, value: Any) -> Inner:
        inner: Inner = []
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

    def _class_attributes(self, cls: type) -> Inner:
        """Add a step that restores plain values of a module's class, such as a call counter."""
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
    """Return a step that refills a container if it has changed.

    It calls the methods of the built-in class `base`, not methods that override them.
    """
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
    """Return a step that refills a dict if it has changed.

    The step is written for speed, because it is run for many dicts in each pass.
    """
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


def _is_foreign(kind: type) -> bool:
    """Return whether a class belongs to Python or torch, so that it holds no state of a model."""
    home = kind.__module__
    return home.partition(".")[0] in _STANDARD or home.startswith(_INNER)


def _numbered(path: str, values: Iterable[Any]) -> Inner:
    return [(f"{path}[{n}]", x) for n, x in enumerate(values)]


def state_step(read: Callable[[], Any], write: Callable[[Any], Any]) -> Callable[[], None]:
    """Return a step that restores the current state if it has changed."""
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


def _is_filled(cell: types.CellType) -> bool:
    """Return whether a closure's variable has a value yet."""
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


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
