"""Groups of parameters with settings of their own: they survive a checkpoint, bit for bit."""

from pathlib import Path

import torch

from normlab.train.build import parameter_kinds
from normlab.train.checkpoint import load_checkpoint
from tests.train.trainers import build_trainer, weights

GROUPS = (
    *("+optim.groups.norm.weight_decay=0", "+optim.groups.bias.weight_decay=0"),
    *("optim.weight_decay=0.1", "optim.lr=1e-2"),
)


def run(trainer, steps):
    for _ in range(steps):
        trainer.step()
    return trainer


def test_groups_resume_bitwise(corpus: Path, tmp_path: Path):
    undisturbed = run(build_trainer(corpus, tmp_path / "whole", *GROUPS), 6)
    run(build_trainer(corpus, tmp_path / "killed", *GROUPS), 3).save()
    again = build_trainer(corpus, tmp_path / "killed", *GROUPS)
    again.resume(load_checkpoint(again.checkpoints.last))
    assert [group["weight_decay"] for group in again.optimizer.param_groups] == [0.1, 0.0]
    run(again, 3)
    for name, value in weights(undisturbed.model).items():
        assert torch.equal(weights(again.model)[name], value), name
    rates = {group["lr"] for group in again.optimizer.param_groups}
    assert rates == {again.schedule(6)}


def test_spared_parameters_do_not_decay(corpus: Path, tmp_path: Path):
    # A gradient of nothing leaves decay alone to move a parameter.
    trainer = build_trainer(corpus, tmp_path, *GROUPS, "optim=sgd")
    before = weights(trainer.model)
    for parameter in trainer.parameters:
        parameter.grad = torch.zeros_like(parameter)
    trainer.optimizer.step()
    moved = {n for n, v in weights(trainer.model).items() if not torch.equal(v, before[n])}
    assert moved
    assert all(name.endswith("weight") and "norm" not in name for name in moved)


def test_a_rate_of_its_own_moves_a_kind_less_and_none_freezes_it(corpus: Path, tmp_path: Path):
    rates = ("+optim.groups.norm.rate=0", "+optim.groups.embedding.rate=0.5", "optim=sgd")
    trainer = build_trainer(corpus, tmp_path, *rates)
    before = weights(trainer.model)
    trainer.step()
    found = {group.get("rate", 1.0): group["lr"] for group in trainer.optimizer.param_groups}
    assert found == {rate: rate * trainer.schedule(1) for rate in (1.0, 0.0, 0.5)}
    kinds = {id(parameter): kind for parameter, kind in parameter_kinds(trainer.model)}
    after = weights(trainer.model)
    for name, parameter in trainer.model.named_parameters():
        if kinds[id(parameter)] == "norm":
            assert torch.equal(after[name], before[name]), name
    assert any(not torch.equal(after[name], before[name]) for name in after)
