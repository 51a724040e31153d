"""No sound model is accused, and every model is afterwards as it was, bit for bit."""

import os
import random
import signal
import time

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves

import normlab
from tests.inspect.foreign.models import MODELS, sound

INTERRUPTIONS = int(os.environ.get("NORMLAB_INTERRUPTIONS", "6"))


def state(case):
    """Return what an inspection may not change.

    Python's random state is left out: the type checks of tests draw from it.
    """
    model = case.model
    return {
        "tensors": {k: v.clone() for k, v in model.state_dict(keep_vars=False).items()},
        "identities": [id(p) for p in (*model.parameters(), *model.buffers())],
        "gradients": [p.grad for p in model.parameters()],
        "flags": [p.requires_grad for p in model.parameters()],
        "modes": [m.training for m in model.modules()],
        "hooks": [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()],
        "inputs": [{k: v.clone() for k, v in batch.items()} for batch in case.batches],
        "random": (torch.get_rng_state(), np.random.get_state()),
        "backends": (torch.backends.mha.get_fastpath_enabled(), torch.is_grad_enabled()),
        "dtype": torch.get_default_dtype(),
    }


def same(before, after):
    for kind in before:
        pairs = zip(tree_leaves(before[kind]), tree_leaves(after[kind]), strict=True)
        for x, y in pairs:
            equal = np.array_equal if isinstance(x, np.ndarray) else torch.equal
            assert equal(x, y) if hasattr(x, "shape") else x == y, kind


@pytest.mark.parametrize("name", MODELS)
def test_a_sound_model_is_not_accused_and_stays_as_it_was(name):
    case = sound(name)
    before = state(case)
    report = normlab.inspect(case.model, case.batches, **case.arguments)
    same(before, state(case))
    accused = {k: str(f) for k, f in report.findings.items() if f.verdict in ("look", "broken")}
    assert accused == {}


@pytest.fixture
def interrupt():
    """Return a function that presses Ctrl-C after some seconds."""
    keys = {signal.SIGALRM: lambda *_: signal.raise_signal(signal.SIGINT)}
    keys[signal.SIGINT] = signal.default_int_handler  # in the background, it is ignored
    former = {key: signal.signal(key, handler) for key, handler in keys.items()}
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    for key, handler in former.items():
        signal.signal(key, handler)


def test_a_model_stays_as_it_was_when_its_inspection_is_interrupted(interrupt):
    case, generator = sound("T5"), random.Random(0)
    normlab.inspect(case.model, case.batches)  # imports, the first time
    started = time.perf_counter()
    normlab.inspect(case.model, case.batches)
    seconds = time.perf_counter() - started
    before, interrupted = state(case), 0
    for _ in range(INTERRUPTIONS):
        try:
            interrupt(generator.uniform(0.002, seconds))
            normlab.inspect(case.model, case.batches)
        except KeyboardInterrupt:
            interrupted += 1
        finally:
            interrupt(0)
        same(before, state(case))
    assert interrupted > INTERRUPTIONS / 2


def test_a_model_may_have_no_limit_of_positions():
    case = sound("Llama")
    case.model.config.max_position_embeddings = -1
    assert normlab.inspect(case.model, case.batches).findings["padding"].verdict == "fine"
