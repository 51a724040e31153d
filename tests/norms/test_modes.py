"""Training and eval, precision, compilation, saved state: the contract of every norm."""

import subprocess
import sys

import pytest
import torch

from normlab.config.registry import option_names
from normlab.norms.base import RunningNorm, Stream
from normlab.norms.model import ModelNorms
from normlab.norms.recalibration import recalibrated
from normlab.train.build import make_norm

NORMS = option_names("norm")
BATCH = [n for n in NORMS if isinstance(make_norm(n, 8), RunningNorm)]


def _batch(seed=0, shape=(4, 6, 8), dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(*shape, generator=generator, dtype=dtype) * 3 + 2
    valid = torch.arange(shape[1])[None] < torch.tensor([6, 2, 4, 5])[:, None]
    return x, Stream(valid)


def _trained(option, **values):
    middle = {"start": 0.5} if option == "prepbn" else {}  # of its blend
    norm = make_norm(option, 8, **middle, **values)
    for seed in range(3):
        norm(*_batch(seed))
    return norm.eval()


@pytest.mark.parametrize("option", BATCH)
def test_eval_by_the_batch_depends_on_it(option):
    norm = _trained(option, eval_stats="batch")
    x, stream = _batch(9)
    assert not norm.batch_independent and not norm.incremental
    alone = norm(x[:1], Stream(stream.valid[:1]))[0]
    assert not torch.allclose(norm(x, stream)[0], alone)


@pytest.mark.parametrize("option", BATCH)
def test_frozen_statistics_stay_and_training_computes_what_inference_does(option):
    model = torch.nn.Sequential(_trained(option).train())
    norms = ModelNorms(model, freeze_statistics=0.5)
    assert norms.milestones(4)["freeze_statistics"] == 2
    x, stream = _batch(9)
    tables = model[0].tables
    for step in (1, 2):
        norms.begin_step(step, 4)
        before = {name: table.clone() for name, table in tables.items()}
        model.train()[0](x, stream)
        norms.commit()
    assert any(not torch.equal(before[name], table) for name, table in tables.items())
    before = {name: table.clone() for name, table in tables.items()}
    norms.begin_step(3, 4)
    y = model.train()[0](x.requires_grad_(), stream)
    y.sum().backward()
    norms.commit()
    assert all(torch.equal(before[name], table) for name, table in tables.items())
    assert torch.equal(y[stream.valid], model.eval()[0](x, stream)[stream.valid])
    assert x.grad.isfinite().all() and x.grad[stream.valid].abs().min() > 0


def test_what_cannot_be_frozen_is_named():
    by_batch = torch.nn.Sequential(make_norm("bn", 8, eval_stats="batch"))
    with pytest.raises(ValueError, match=r"freeze_statistics=0\.5: norm\.eval_stats=batch"):
        ModelNorms(by_batch, freeze_statistics=0.5)
    with pytest.raises(ValueError, match=r"give budget\.steps"):
        ModelNorms(torch.nn.Sequential(make_norm("ln", 8)), freeze_statistics=0.5).milestones(None)


COMPILE = """
import torch
from normlab.train.build import make_norm
from normlab.norms.base import Clock, Stream
from normlab.config.registry import option_names

torch.manual_seed(0)
batches = torch.randn(2, 4, 6, 8, dtype=torch.float64)
stream = Stream(torch.arange(6)[None] < torch.tensor([6, 2, 4, 5])[:, None])
for option in option_names("norm"):
    torch.compiler.reset()
    plain, norm = (make_norm(option, 8).double() for _ in range(2))
    steps = (1, 8) if norm.phases else (1,)  # the last is past all warm-ups
    whole = not hasattr(type(norm).forward, "__wrapped__")  # by what leaves it out of graphs
    compiled = torch.compile(norm, fullgraph=whole, dynamic=True, backend="aot_eager")
    assert whole or option not in ("ln", "in", "bn")
    for step, batch in zip(steps, batches):
        found = []
        for module, call in ((norm, compiled), (plain, plain)):
            module.clock = Clock(step, 8)
            x = batch.clone().requires_grad_()
            y = call(x, stream) * stream.valid[..., None]
            (y * batch.cos()).sum().backward()
            found.append((y, x.grad, module.state_dict()))
        torch.testing.assert_close(*found, msg=lambda m: f"{option}: {m}")
"""


def test_all_norms_compile_and_those_without_a_backward_pass_of_their_own_as_one_graph():
    """In a process of its own: the shape checks of the tests cannot be compiled."""
    result = subprocess.run([sys.executable, "-c", COMPILE], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_a_batch_of_one_token_is_refused():
    norm = make_norm("bn", 8)
    with pytest.raises(ValueError, match="batch of one token"):
        norm(torch.randn(1, 3, 8), Stream(torch.tensor([[True, False, False]])))


def test_a_position_beyond_the_rows_is_refused():
    norm = make_norm("bn_position", 8, num_positions=4)
    with pytest.raises(ValueError, match="num_positions=4"):
        norm(*_batch())


def test_recalibration_pools_batches_as_one_and_goes_back():
    """The estimate equals the moments of all batches laid side by side."""
    norm = _trained("bn").double()
    model = torch.nn.Sequential(norm)
    batches = [_batch(seed, dtype=torch.float64) for seed in (20, 21)]
    former = norm.running_mean.clone(), norm.running_var.clone()

    def feed():
        for batch in batches:
            norm(*batch)

    tokens = torch.cat([x[stream.valid] for x, stream in batches])
    with recalibrated(model, feed):
        torch.testing.assert_close(norm.running_mean[0], tokens.mean(0))
        torch.testing.assert_close(norm.running_var[0], tokens.var(0))
        assert not norm.training
    torch.testing.assert_close((norm.running_mean, norm.running_var), former, rtol=0, atol=0)


def test_recalibration_on_nothing_is_refused():
    with (
        pytest.raises(ValueError, match="at least one batch"),
        recalibrated(torch.nn.Sequential(_trained("bn")), lambda: None),
    ):
        pass
