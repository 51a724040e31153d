"""Two gloo ranks give the same results as one process."""

from functools import partial
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from normlab.config.folders import CONFIG_DIR
from normlab.config.instantiation import instantiate
from normlab.config.run_config import to_dict
from normlab.distributed import process_group
from normlab.models.base import ModelArchitecture
from normlab.models.layers import initialize
from normlab.models.recurrent import Recurrent
from normlab.norms.make import make_norm
from normlab.norms.model_norms import ModelNorms, recalibrated
from normlab.norms.running import RunningNorm, running_norms
from normlab.norms.tokens import Tokens
from normlab.placements import admin
from normlab.placements.base import Norms
from tests.training.trainers import on_ranks

BY_POSITION = ("bn_position", "bn_sample")
BATCH = ("bn", "global", *BY_POSITION, "rbn", "brn", "prepbn", "pn", "mabn", "un")
LENGTHS = torch.tensor([7, 3, 5, 2, 6, 4])


def _data():
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(6, 7, 4, generator=generator, dtype=torch.float64) * 2 + 1
    pull = torch.randn(6, 7, 4, generator=generator, dtype=torch.float64)
    return x, pull, torch.arange(7)[None] < LENGTHS[:, None]


STEPS = 6  # past the end of each warm-up


def _forward_backward(option, sync, rows):
    """Run a training pass on some sentences; return outputs, gradients and running statistics."""
    data, pull, valid = (tensor[rows] for tensor in _data())
    others = (torch.arange(6) >= 2)[rows, None]  # in one step the first rank has only padding
    norm = make_norm(option, 4, sync=sync, momentum=0.5).double()
    assert isinstance(norm, RunningNorm)
    norms = ModelNorms(torch.nn.Sequential(norm))
    outputs, grads, of_weights = [], [], []
    for step in range(1, STEPS + 1):
        x = (data * (1 + step / 10)).requires_grad_()
        norms.begin_step(step, STEPS)
        real = valid & others if sync and step == 3 else valid
        y = norm(x, Tokens(real)) * real[..., None]
        (y * pull).sum().backward()
        process_group.sum_gradients(norm.parameters())
        norms.commit()
        outputs.append(y)
        grads.append(x.grad)
        of_weights.append(norm.weight.grad)
        norm.zero_grad()
    found = torch.cat(outputs, 1), torch.cat(grads, 1), torch.stack(of_weights)
    return [t.detach() for t in (*found, *norm.running_moments(), *norm.tables.values())]


RECURRENT = ("recurrent bn", "recurrent bn_position")


def _recurrence(option, rows, **values):
    """Run a recurrent network on the rank's sequences, padded to the longest of them."""
    x, pull, valid = (tensor[rows] for tensor in _data())
    width = int(valid.sum(1).max())
    node = to_dict(OmegaConf.load(CONFIG_DIR / "model" / "lstm.yaml"))
    given = {"dim": 4, "initial_noise": 0.0}
    arch: Any = instantiate({**node, **given}, "model", ModelArchitecture)
    model = Recurrent(arch, Norms([("*", _made(option, **values))]), 4)
    initialize(model, 1)
    model, x = model.double(), x[:, :width].requires_grad_()
    short = valid[:, :width]
    y = model(x, Tokens(short)) * short[..., None]
    (y * pull[:, :width]).sum().backward()
    process_group.sum_gradients(model.parameters())
    room = (0, 0, 0, 7 - width)
    assert x.grad is not None
    y, of_x = (torch.nn.functional.pad(t, room) for t in (y, x.grad))
    tables = [table for norm in running_norms(model) for table in norm.tables.values()]
    return [t.detach() for t in (y, of_x, *(p.grad for p in model.parameters()), *tables)]


def _made(option, **values):
    return lambda dim: make_norm(option, dim, momentum=1.0, **values)


def _own_rows():
    """Return this rank's sentences: 2 on the first rank, 4 on the second."""
    return slice(0, 2) if process_group.world().rank == 0 else slice(2, 6)


def _synced(rows=None):
    rows = _own_rows() if rows is None else rows
    found = {option: _forward_backward(option, True, rows) for option in BATCH}
    return found | {name: _recurrence(name.split()[1], rows) for name in RECURRENT}


def test_synced_ranks_compute_the_same_as_one_process():
    both = on_ranks(2, _synced)
    for option, whole in _synced(slice(0, 6)).items():
        parts = [rank[option] for rank in both]
        for i in (0, 1):  # outputs and input gradients: each rank has its own sentences
            torch.testing.assert_close(torch.cat([p[i] for p in parts]), whole[i])
        for i in range(2, len(whole)):  # summed gradients and statistics: equal on all ranks
            for part in parts:
                torch.testing.assert_close(part[i], whole[i])


def _short_and_long():
    """Train the per-position norms on batches of 3 positions on one rank and 6 on the other."""
    rank = process_group.world().rank
    x, pull, _ = _data()
    span = (slice(0, 2), slice(0, 3)) if rank == 0 else (slice(2, 6), slice(0, 6))
    found = {}
    for option in BY_POSITION:
        norm = make_norm(option, 4, momentum=0.5, num_positions=8).double()
        own = x[span].clone().requires_grad_()
        for _ in range(2):
            y = norm(own, Tokens())
        (y * pull[span]).sum().backward()
        found[option] = [y.detach(), own.grad, *norm.running_moments()]
    return found


def _gradients_of_two_ranks():
    torch.manual_seed(0)
    layers = torch.nn.ModuleList(torch.nn.Linear(3, 3, bias=False) for _ in range(3))
    layers[1].double()
    params = [torch.nn.Parameter(torch.ones(2)), *layers.parameters()]  # the first is not used

    def loss(row):
        x = layers[1](layers[0](row).double()).float()
        return layers[2](layers[2](x)).sum()  # the last layer is used twice

    rows = torch.arange(6.0).view(2, 3)
    loss(rows[process_group.world().rank]).backward()
    process_group.sum_gradients(params)
    found = [param.grad for param in params]
    for param in params:
        param.grad = None
    (loss(rows[0]) + loss(rows[1])).backward()
    return found, [param.grad for param in params]


def _collectives():
    shard = process_group.world()
    x = torch.tensor([1.0 + shard.rank], requires_grad=True)
    (process_group.sum_over_ranks(x) * (shard.rank + 1)).sum().backward()
    values, _, valid = _data()
    return (
        process_group.sum_scalars([1.5, float(shard.rank)]),
        process_group.gather_objects({"rank": shard.rank}),
        x.grad,
        admin.variance(values[_own_rows()], valid[_own_rows()]),
    )


# the batches that two ranks evaluate: two and one
EVALUATED = (slice(0, 2), slice(2, 3)), (slice(3, 6),)
UNSHARED = ("bn", {"sync": False}), ("bn", {"ghost": 2}), ("bn_position", {"ghost": 2})


def _outputs(norm, batches):
    """Return a norm's outputs at the real tokens of some batches, each a slice of sentences."""
    x, _, valid = _data()
    return [norm(x[rows], Tokens(valid[rows]))[valid[rows]].detach() for rows in batches]


def _evaluation(batches):
    """Return each norm's outputs with batch statistics, and its recalibrated statistics."""
    results = []
    for option, values in (*((option, {}) for option in BATCH), *UNSHARED):
        norm = make_norm(option, 4, eval_stats="batch", **values).double().eval()
        assert isinstance(norm, RunningNorm)
        outputs = torch.cat(_outputs(norm, batches))
        with recalibrated(torch.nn.Sequential(norm), partial(_outputs, norm, batches)):
            tables = [table.clone() for table in norm.running_moments()]
        results.append((outputs, tables))
    return results


def _disagreement():
    with pytest.raises(ValueError) as caught:
        process_group.check_agreement({"the code": "abc", "the record": process_group.world().rank})
    return str(caught.value)


def _several():
    unsynced = [_forward_backward(option, False, _own_rows()) for option in ("bn", "mabn")]
    unsynced.append(_recurrence("bn", _own_rows(), sync=False))
    evaluation = _evaluation(EVALUATED[process_group.world().rank])
    parts = _short_and_long, _gradients_of_two_ranks, _collectives, _disagreement
    return [unsynced, *(part() for part in parts), evaluation]


@pytest.fixture(scope="module")
def several():
    """Return the results of several functions, each run on two ranks, one after the other."""
    return list(zip(*on_ranks(2, _several), strict=True))


def test_ranks_whose_batches_differ_in_length_have_the_same_statistics(several):
    x, pull, _ = _data()
    valid = torch.arange(6)[None] < torch.tensor([3, 3, 6, 6, 6, 6])[:, None]
    first, second = several[1]
    for option in BY_POSITION:
        norm = make_norm(option, 4, momentum=0.5, num_positions=8).double()
        whole = x[:, :6].clone().requires_grad_()
        for _ in range(2):
            y = norm(whole, Tokens(valid))
        (y * pull[:, :6])[valid].sum().backward()
        for own, rows, length in ((first, slice(0, 2), 3), (second, slice(2, 6), 6)):
            y_own, grad, *tables = own[option]
            torch.testing.assert_close(tables, list(norm.running_moments()), msg=option)
            torch.testing.assert_close(y_own, y[rows, :length].detach())
            torch.testing.assert_close(grad, whole.grad[rows, :length])


def test_unsynced_ranks_normalize_separately_but_share_running_statistics(several):
    alone = [_forward_backward("bn", False, rows) for rows in (slice(0, 2), slice(2, 6))]
    whole = _forward_backward("bn", False, slice(0, 6))
    (_, mabn, recurrent), _ = several[0]
    for rank, own in zip(several[0], alone, strict=True):
        torch.testing.assert_close(rank[0][0], own[0])
        torch.testing.assert_close(rank[0][3:], whole[3:])
        torch.testing.assert_close(rank[1][3:], mabn[3:], rtol=0, atol=0)
        torch.testing.assert_close(rank[2][2:], recurrent[2:], rtol=0, atol=0)


def test_ranks_evaluate_and_recalibrate_on_different_numbers_of_batches(several):
    x, _, valid = _data()
    assert valid[:, 6].sum() == 1  # a single token, whose position keeps its statistics
    whole = _evaluation([rows for batches in EVALUATED for rows in batches])
    for first, second, (outputs, tables) in zip(*several[5], whole, strict=True):
        torch.testing.assert_close(torch.cat([first[0], second[0]]), outputs)
        for own in (first, second):
            torch.testing.assert_close(own[1], tables)
    pooled = whole[BATCH.index("bn")][1]
    torch.testing.assert_close(pooled[0][0], x[valid].mean(0))
    torch.testing.assert_close(pooled[1][0], x[valid].var(0))


def test_gradients_of_several_dtypes_are_summed_over_ranks(several):
    for found, whole in several[2]:
        assert found[0] is None and whole[0] is None
        for own, expected in zip(found[1:], whole[1:], strict=True):
            torch.testing.assert_close(own, expected)


def test_collectives_combine_the_values_of_all_ranks(several):
    values, _, valid = _data()
    for sums, gathered, gradient, variance in several[3]:
        torch.testing.assert_close(variance, values[valid].var(correction=0))
        assert sums == [3.0, 1.0]
        assert gathered == [{"rank": 0}, {"rank": 1}]
        assert gradient.item() == 3  # the ranks' losses count once and twice


def test_every_rank_reports_files_that_differ_between_ranks(several):
    first, second = several[4]
    assert first == second
    assert first.startswith("the record: 0 on rank 0, and 1 on rank 1, but all ranks need")


def test_plain_numbers_are_summed_on_the_cpu_even_with_nccl(monkeypatch):
    devices = []
    monkeypatch.setattr(process_group, "world", lambda: process_group.Shard(0, 2))
    monkeypatch.setattr(process_group.dist, "get_backend", lambda: "nccl")
    monkeypatch.setattr(
        process_group, "sum_over_ranks", lambda x: devices.append(x.device.type) or 2 * x
    )
    assert process_group.sum_scalars([1.0, 3.0]) == [2.0, 6.0] and devices == ["cpu"]
