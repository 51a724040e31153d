"""The cost of a step in counts, which do not depend on the machine or on what else it does.

A count may fall; if it has to rise, the reason belongs in `results/bench/LOG.md`.
"""

from collections import Counter
from contextlib import nullcontext

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from normlab.bench.speed import start
from normlab.config.compose import compose, to_dict
from normlab.config.registry import option_names
from normlab.norms.ranks import Shard
from normlab.train.runtime import Runtime
from tests.bench.small import TOY
from tests.train.test_norm_state import PLACES

LAYERS = ("model.encoder_layers=6", "model.decoder_layers=6")
VIEWS = ("view", "transpose", "t.", "expand", "slice", "select", "unsqueeze", "detach", "split")


class Operators(TorchDispatchMode):
    """Counts the operators that reach a kernel, by name."""

    def __init__(self):
        super().__init__()
        self.calls = Counter()

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        name = str(operator).removeprefix("aten.")
        if not name.startswith(VIEWS) and "unsafe_view" not in name and "alias" not in name:
            self.calls[name.partition(".")[0]] += 1
        return operator(*args, **(kwargs or {}))


def counted(call):
    with Operators() as operators:
        call()
    return operators.calls


@pytest.fixture(scope="module")
def runtime():
    return Runtime.start(device="cpu", precision="fp32", threads=1)


def contender(norm, runtime, *more):
    return start(norm, to_dict(compose([*TOY, f"norm={norm}", *more])), runtime)


@pytest.mark.parametrize(("norm", "bound"), [("none", 258), ("ln", 272), ("bn", 451)])
def test_operators_of_a_training_step(norm, bound, runtime):
    running = contender(norm, runtime, "probe=[]")
    found = counted(running.trainer.step)
    assert sum(found.values()) <= bound, found


@pytest.fixture
def device_waits(monkeypatch):
    """Lists what is asked of the device `meta`: it holds no values, and only `tolist` gets some."""
    asked, autocast, tolist = [], torch.autocast, torch.Tensor.tolist

    def answered(tensor):
        if not tensor.is_meta:
            return tolist(tensor)
        asked.append(tensor.shape)
        return torch.ones(tensor.shape).tolist()

    monkeypatch.setattr(torch.Tensor, "tolist", answered)
    monkeypatch.setattr(
        torch, "autocast", lambda on, **kw: nullcontext() if on == "meta" else autocast(on, **kw)
    )
    return asked


def test_a_step_waits_for_a_device_once(device_waits):
    """Whatever the norms: all of them are in one model, each at a place of its own."""
    sites = ",".join(map("{}:{}".format, PLACES, option_names("norm")))
    device = Runtime(torch.device("meta"), "fp32", Shard(0, 1))
    overrides = [*TOY, *LAYERS, f"sites={{{sites}}}", "probe=full"]
    overrides += ["observe.log_every=1000", "optim.fused=false"]  # no fused kernels know `meta`
    running = start("all", to_dict(compose(overrides)), device)
    running.trainer.step()
    assert device_waits == [(3,), (3,)]  # loss, penalty, gradient norm: what tells of a divergence
