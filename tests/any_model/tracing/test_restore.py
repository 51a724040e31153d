"""A model, its inputs and the process are restored bit for bit."""

import signal
from collections import OrderedDict, deque

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import normlab
from normlab.any_model.tracing.restore import preserved
from tests.any_model.pairs import WIDTH, bert, same, state, text_batches
from tests.any_model.toys import QUICK, Normed


@pytest.mark.parametrize("stop", [*range(0, 24, 3), None])
def test_an_interrupted_inspection_restores_everything(batch, stop):
    model = Normed().train()
    model.embedding.weight.grad = torch.ones(50, 8)
    passes = iter(range(1000))

    def interrupt(*_):
        torch.rand(1), np.random.rand()
        if next(passes) == stop:
            raise KeyboardInterrupt

    model.norm.register_forward_hook(interrupt)
    before = state(model, [batch])
    try:
        normlab.inspect(model, [batch], checks=QUICK)
        stopped = False
    except KeyboardInterrupt:
        stopped = True
    assert stopped == (stop is not None) and same(before, state(model, [batch]))


def test_weights_that_share_storage_are_all_restored():
    weights = torch.randn(2, 8, 8)
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    for each, weight in zip(model, weights, strict=True):
        each.weight = nn.Parameter(weight)
    before = weights.clone()
    normlab.inspect(model, [torch.randn(3, 4, 8)], checks=["precision"])
    assert torch.equal(weights, before)


def test_attributes_and_settings_that_a_model_changes_are_restored():
    model = Normed()
    with preserved(model):
        model.new, model.cache, model.norm = 1, None, None
        model.embedding.weight.data[0] += 1
        torch.set_default_dtype(torch.float64)
    assert not hasattr(model, "new") and isinstance(model.norm, nn.BatchNorm1d)
    assert torch.get_default_dtype() == torch.float32 and len(model.cache) == 1


@pytest.fixture
def press():
    """Return a function that presses Ctrl-C; background jobs would ignore it otherwise."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda: signal.raise_signal(signal.SIGINT)
    signal.signal(signal.SIGINT, former)


def test_ctrl_c_takes_effect_at_the_next_operation_and_after_restoring(press):
    class Pressing(dict):
        def update(self, *args):
            press(), press()
            super().update(*args)

    model, seen, handler = nn.Linear(2, 2), [], signal.getsignal(signal.SIGINT)
    model.settings = Pressing(a=1)
    with pytest.raises(KeyboardInterrupt), preserved(model):
        model.train(False)
        press()
        seen.append("before the operation")
        torch.ones(1)
        seen.append("after it")
    assert seen == ["before the operation"]
    assert model.settings == {"a": 1} and model.training
    assert signal.getsignal(signal.SIGINT) is handler


def test_ctrl_c_pressed_twice_stops_a_pass_without_operations(press):
    with pytest.raises(KeyboardInterrupt), preserved(nn.Linear(2, 2)):
        press(), press()
        pytest.fail("still running")


def test_ctrl_c_between_two_contexts_is_not_lost(press):
    model = nn.Linear(2, 2)
    with pytest.raises(KeyboardInterrupt), preserved(model):
        with preserved(model):
            press()
        torch.ones(1)
        pytest.fail("still running")


class Frozen(OrderedDict):
    """A read-only dict, like the configs of diffusers."""

    def __setitem__(self, *_):
        raise TypeError("frozen")

    update = clear = pop = __delitem__ = __setitem__


class Holder:
    """Holds several kinds of state outside a module."""

    __slots__ = ("array", "deque", "generator", "lists", "number", "rng")

    def __init__(self):
        self.number, self.lists, self.deque = 0, [[1]], deque([1])
        self.array, self.rng = np.zeros(3), np.random.default_rng(0)
        self.generator = torch.Generator().manual_seed(1)

    def values(self):
        words = str([self.number, self.lists, self.deque, self.array, self.rng.bit_generator.state])
        return words, self.generator.get_state().tolist()


class Stateful(nn.Module):
    calls = 0

    def __init__(self):
        super().__init__()
        self.embed, self.cache, self.limits = nn.Embedding(256, WIDTH), Holder(), [Holder()]
        self.config = OrderedDict.__new__(Frozen)
        OrderedDict.__setitem__(self.config, "width", WIDTH)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        cache = self.cache
        cache.number += 1
        cache.lists[0].append(cache.number), cache.deque.append(1)
        cache.array += 1
        cache.rng.random(), torch.rand(1, generator=cache.generator), torch.rand(1)
        self.limits.append(1)
        type(self).calls += 1
        return self.embed(input_ids)


def test_the_state_of_objects_outside_modules_is_restored():
    model, batch = Stateful().train(), text_batches()[0]
    before, random = model.cache.values(), torch.get_rng_state()
    normlab.inspect(model, [batch])
    assert model.training
    assert model.cache.values() == before and len(model.limits) == 1 and Stateful.calls == 0
    assert [*model.config.items()] == [("width", WIDTH)]
    assert torch.equal(random, torch.get_rng_state())


def test_an_object_that_cannot_be_restored_is_reported_and_the_others_are_restored():
    class Locking(Stateful):
        def forward(self, input_ids, attention_mask):
            y = super().forward(input_ids, attention_mask)
            self.cache.array.flags.writeable = False
            return y

    model = Locking().train()
    random = torch.get_rng_state()
    model.cache.array = locked = np.zeros(3)
    with pytest.warns(UserWarning, match="cache.array: ValueError"), preserved(model) as state:
        model.eval()
        locked += 1
        locked.flags.writeable = False
        model.limits.clear(), torch.rand(3)
    assert len(state.refused) == 1 and model.training and len(model.limits) == 1
    assert torch.equal(random, torch.get_rng_state())
    model.cache.array = np.zeros(3)
    with pytest.warns(UserWarning, match="not restored"):
        found = normlab.inspect(model, text_batches()).findings
    assert found["restore"].verdict == "failed"


def test_the_title_lists_iterators_that_cannot_be_rewound():
    model = bert()
    model.stream = (n for n in range(3))
    assert (
        "iterators cannot be rewound: stream (generator)"
        in normlab.inspect(model, text_batches(), checks="forward").title
    )
