"""`optim=muon` is torch's Muon for hidden matrices and torch's AdamW for the rest."""

from pathlib import Path

import pytest
import torch

from normlab.config.compose import compose
from normlab.config.run_config import to_dict
from normlab.errors import UserError
from normlab.norms.base import Norm
from normlab.training.build import build_model, build_task
from normlab.training.checkpoint import load_checkpoint
from normlab.training.optimizer import Muon, build_optimizer, optimizer_kinds
from tests.training.trainers import build_trainer, largest_difference, weights

VALUES = ("optim=muon", "optim.lr=1e-2", "optim.weight_decay=0.1", "clip_grad=1.0")


def test_muon_matches_muon_and_adamw_of_torch_step_for_step(corpus: Path, tmp_path: Path):
    trainer = build_trainer(corpus, tmp_path, *VALUES)
    names = {id(parameter): name for name, parameter in trainer.model.named_parameters()}
    copies = {n: p.detach().clone() for n, p in trainer.model.named_parameters()}
    kinds = {names[id(p)]: kind for p, kind in optimizer_kinds(trainer.model)}
    hidden = [n for n, kind in kinds.items() if kind == "other" and copies[n].ndim == 2]
    rest = [n for n in copies if n not in hidden]
    assert {kinds[n] for n in rest} == {"embedding", "norm", "bias"}
    assert len(hidden) >= 8
    shared = {"lr": 1e-2, "weight_decay": 0.1}
    muon = torch.optim.Muon(
        [copies[n] for n in hidden], **shared, adjust_lr_fn="match_rms_adamw", momentum=0.95
    )
    adamw = torch.optim.AdamW([copies[n] for n in rest], **shared, betas=(0.9, 0.98), fused=True)
    for step in (1, 2, 3):
        trainer.step()
        for name, parameter in trainer.model.named_parameters():
            copies[name].grad = parameter.grad
        for optimizer in (muon, adamw):
            for group in optimizer.param_groups:
                group["lr"] = trainer.schedule(step)
            optimizer.step()
        assert largest_difference(dict(trainer.model.named_parameters()), copies) == 0


def test_a_run_with_muon_resumes_bitwise(corpus: Path, tmp_path: Path):
    straight = build_trainer(corpus, tmp_path / "straight", *VALUES)
    for _ in range(4):
        straight.step()
    stopped = build_trainer(corpus, tmp_path / "stopped", *VALUES)
    stopped.step()
    stopped.step()
    stopped.save()
    resumed = build_trainer(corpus, tmp_path / "stopped", *VALUES)
    resumed.resume(load_checkpoint(stopped.checkpoints.last))
    resumed.step()
    resumed.step()
    assert largest_difference(weights(straight.model), weights(resumed.model)) == 0


def test_rates_and_weight_decay_by_kind_apply_to_both_optimizers_of_muon(
    corpus: Path, tmp_path: Path
):
    own = ("+optim.groups.other.rate=0", "+optim.groups.norm.weight_decay=0")
    trainer = build_trainer(corpus, tmp_path, *VALUES, *own)
    optimizer = trainer.optimizer
    assert isinstance(optimizer, Muon)
    before = weights(trainer.model)
    trainer.step()
    after = weights(trainer.model)
    kinds = {id(p): kind for p, kind in optimizer_kinds(trainer.model)}
    for name, parameter in trainer.model.named_parameters():
        moved = not torch.equal(before[name], after[name])
        assert moved == (kinds[id(parameter)] != "other"), name
    decays = {
        kinds[id(p)]: group["weight_decay"]
        for group in optimizer.param_groups
        for p in group["params"]
    }
    assert decays == {"embedding": 0.1, "norm": 0.0, "bias": 0.1, "other": 0.1}


def test_muon_is_refused_for_a_convolutional_network_without_hidden_matrices():
    config = to_dict(compose(["task=digits", "model=resnet8", "optim=muon"]))
    model = build_model(config, build_task(config))
    names = {id(p): name for name, p in model.named_parameters()}
    kinds = {names[id(p)]: kind for p, kind in optimizer_kinds(model)}
    assert (kinds["classes.weight"], kinds["classes.bias"]) == ("output", "bias")
    with pytest.raises(UserError, match=r"optim=muon: this model has no matrices in hidden"):
        build_optimizer(config, model)


def test_an_untied_output_layer_has_its_own_rate(corpus: Path, tmp_path: Path):
    own = ("model.share_embeddings=none", "+optim.groups={output:{rate:0},embedding:{rate:1}}")
    trainer = build_trainer(corpus, tmp_path, *own)
    before = weights(trainer.model)
    trainer.step()
    after = weights(trainer.model)
    kept = {name for name, value in before.items() if torch.equal(value, after[name])}
    assert kept == {"output.weight"}


@pytest.mark.parametrize(
    ("overrides", "kind", "hint"),
    [(("task=toy", "model=tiny"), "output", "tied"), (("task=digits",), "embedding", "; omit it")],
)
def test_settings_for_weights_that_a_model_does_not_have_are_refused(overrides, kind, hint):
    config = to_dict(compose([*overrides, "norm=none", f"+optim.groups.{kind}.rate=0.1"]))
    model = build_model(config, build_task(config))
    with pytest.raises(UserError, match=rf"optim.groups.{kind} has no effect: .*{hint}"):
        build_optimizer(config, model)
    config["optim"]["groups"] = {"norm": {"rate": 0.1}}  # allowed, although norm=none has none
    build_optimizer(config, model)


def test_the_weight_decay_of_norms_can_be_set_by_site(corpus: Path, tmp_path: Path):
    """The last matching path decides, and takes precedence over the settings for all norms."""
    own = "+optim.groups={*.final:{weight_decay:0.3},norm:{weight_decay:0,rate:0.5}}"
    model = build_trainer(corpus, tmp_path, *VALUES, own)
    decays = {
        id(p): (group["weight_decay"], group["rate"])
        for group in model.optimizer.param_groups
        for p in group["params"]
        if "rate" in group
    }
    norms = {
        module.path: id(parameter)
        for module in model.model.modules()
        if isinstance(module, Norm)
        for parameter in module.parameters(recurse=False)
    }
    final = {path for path in norms if path.endswith(".final")}
    assert final and {decays[norms[path]] for path in final} == {(0.3, 0.5)}
    assert {decays[norms[path]] for path in norms.keys() - final} == {(0.0, 0.5)}
    with pytest.raises(UserError, match=r"no norm of this model matches \*\.finale; choose from "):
        build_trainer(corpus, tmp_path, "+optim.groups={*.finale:{weight_decay:0}}")
    with pytest.raises(UserError, match=r"optim.groups=.*or paths of norms"):
        build_trainer(corpus, tmp_path, "+optim.groups={gains:{weight_decay:0}}")
