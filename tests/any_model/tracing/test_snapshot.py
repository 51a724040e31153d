"""A snapshot restores what Python objects held, wherever the model reaches them."""

from collections import deque
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from normlab.any_model.tracing.snapshot import Snapshot


class Slotted:
    """An object without `__dict__`."""

    __slots__ = ("value",)

    def __init__(self):
        self.value = 1


class Counting(nn.Module):
    """Counts its calls in an attribute of its class."""

    calls = 0


def counter():
    """Return a function that counts its calls in its closure."""
    count = 0

    def call():
        nonlocal count
        count += 1
        return count

    return call


def listed(value):
    """Return a container's or an array's entries."""
    return value.tolist() if isinstance(value, np.ndarray) else [*value]


@pytest.mark.parametrize(
    ("value", "change"),
    [
        ([1, 2], lambda x: x.append(3)),
        ({"a": 1}, lambda x: x.pop("a")),
        ({1, 2}, lambda x: x.add(3)),
        (deque([1, 2]), lambda x: x.rotate(1)),
        (np.arange(3), lambda x: x.fill(7)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_entries_of_a_changed_container_or_array_are_restored(value, change):
    before, snapshot = listed(value), Snapshot([("root", SimpleNamespace(inner=(value,)))])
    change(value)
    assert listed(value) != before
    assert snapshot.restore() == [] and listed(value) == before


def test_slots_class_attributes_and_closures_are_restored():
    slotted, module, call = Slotted(), Counting(), counter()
    snapshot = Snapshot([("root", [slotted, module, call])])
    slotted.value, Counting.calls = 2, 5
    assert call() == 1
    snapshot.restore()
    assert (slotted.value, Counting.calls, call()) == (1, 0, 1)


@pytest.mark.parametrize(
    ("generator", "draw"),
    [
        (torch.Generator().manual_seed(0), lambda g: float(torch.rand(1, generator=g))),
        (np.random.default_rng(0), lambda g: g.random()),
        (np.random.RandomState(0), lambda g: g.rand()),
    ],
    ids=["torch", "numpy", "numpy's older one"],
)
def test_a_generator_repeats_its_numbers_after_restoring(generator, draw):
    snapshot = Snapshot([("root", [generator])])
    first = draw(generator)
    assert draw(generator) != first
    snapshot.restore()
    assert draw(generator) == first


def test_iterators_are_reported_because_they_cannot_be_rewound():
    snapshot = Snapshot([("model", {"batches": iter(map(abs, [1]))})])
    assert snapshot.one_way == ["model.batches (map)"]


class Unreadable(tuple):
    def __iter__(self):
        raise RuntimeError("not now")


def test_an_object_that_cannot_be_read_is_reported_with_its_error():
    snapshot = Snapshot([("root", [Unreadable((1,)), [1]])])
    assert snapshot.unread == ["root[0] (RuntimeError: not now)"]


def test_objects_beyond_the_limit_are_reported(monkeypatch):
    monkeypatch.setattr("normlab.any_model.tracing.snapshot.MOST_OBJECTS", 2)
    assert Snapshot([("root", [[1], [2]])]).unread == ["root[0] and more (after 2 objects)"]
    assert not Snapshot([("root", [[1]])]).unread


def test_a_closure_whose_variable_has_no_value_yet_is_read():
    def outer():
        def inner():
            return later

        snapshot = Snapshot([("root", inner)])
        later = 1
        return snapshot, later

    assert outer()[0].unread == []
