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
def test_a_correct_model_raises_no_false_alarm_and_is_not_changed(name):
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


def test_an_interrupted_inspection_leaves_the_model_unchanged(interrupt):
    case, generator = sound("ViT"), random.Random(0)
    normlab.inspect(case.model, case.batches)  # imports, the first time
    seconds = float("inf")
    for _ in range(3):  # the shortest, because another process may slow down one of them
        started = time.perf_counter()
        normlab.inspect(case.model, case.batches)
        seconds = min(seconds, time.perf_counter() - started)
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


def test_a_config_with_max_position_embeddings_of_minus_1_is_accepted():
    case = sound("Llama")
    case.model.config.max_position_embeddings = -1
    assert normlab.inspect(case.model, case.batches).findings["padding"].verdict == "fine"
