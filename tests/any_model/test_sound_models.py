"""No correct model gets a false alarm, and every model is restored bit for bit."""

import os
import random
import signal
import time

import pytest

import normlab
from tests.any_model.models import MODELS, sound
from tests.any_model.pairs import same, state

INTERRUPTIONS = int(os.environ.get("NORMLAB_INTERRUPTIONS", "4"))


@pytest.mark.parametrize("name", MODELS)
def test_a_sound_model_is_not_accused_and_stays_as_it_was(name):
    case = sound(name)
    before = state(case.model, case.batches)
    report = normlab.inspect(case.model, case.batches, **case.arguments)
    assert same(before, state(case.model, case.batches))
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
    case, generator = sound("ViT"), random.Random(0)
    normlab.inspect(case.model, case.batches)  # imports, the first time
    started = time.perf_counter()
    normlab.inspect(case.model, case.batches)
    seconds = time.perf_counter() - started
    before, interrupted = state(case.model, case.batches), 0
    for _ in range(INTERRUPTIONS):
        try:
            interrupt(generator.uniform(0.002, seconds))
            normlab.inspect(case.model, case.batches)
        except KeyboardInterrupt:
            interrupted += 1
        finally:
            interrupt(0)
        assert same(before, state(case.model, case.batches))
    assert interrupted >= INTERRUPTIONS / 2


def test_a_model_may_have_no_limit_of_positions():
    case = sound("Llama")
    case.model.config.max_position_embeddings = -1
    assert normlab.inspect(case.model, case.batches).findings["padding"].verdict == "fine"
