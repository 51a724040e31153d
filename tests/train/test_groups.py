"""Groups of parameters with rates of their own."""

from pathlib import Path

import torch

from normlab.train.build import parameter_kinds
from tests.train.trainers import build_trainer, weights


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
