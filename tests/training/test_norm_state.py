"""The training loop and norms with state: steps, penalties, checkpoints."""

from contextlib import nullcontext

import pytest
import torch

from normlab.config.compose import compose
from normlab.config.registry import option_names
from normlab.config.run_config import to_dict
from normlab.distributed.process_group import Shard
from normlab.norms.make import make_norm
from normlab.norms.running import RunningNorm, running_norms
from normlab.probes import base as probe_values
from normlab.records.record import RunRecord
from normlab.training import train
from normlab.training.checkpoint import load_checkpoint
from normlab.training.runtime import Runtime
from normlab.training.speed import start
from tests.bench.small import TOY
from tests.tiny_runs import tiny
from tests.training.trainers import build_trainer, weights

STATEFUL = [n for n in option_names("norm") if isinstance(make_norm(n, 8), RunningNorm)]
PLACES = [
    *(f"encoder.{layer}.{part}" for layer in range(6) for part in ("self", "ffn")),
    *(f"decoder.{layer}.{part}" for layer in range(6) for part in ("self", "cross", "ffn")),
]
STEPS = ("budget.steps=8", "norm.warmup_share=0.5", "accumulate=2")


class Rows:
    """A sink that keeps the rows of the training loop."""

    def __init__(self):
        self.rows = []

    def log(self, row, scores=None):
        self.rows.append(row)


def test_warm_ups_and_statistics_count_updates_rather_than_micro_batches(corpus, tmp_path):
    trainer = build_trainer(corpus, tmp_path, "norm=pn", *STEPS)
    for _ in range(3):
        trainer.step()
    for norm in running_norms(trainer.model):
        assert (norm.clock, int(norm.updates)) == ((3, 8), 3) and norm.last_steps(8) == {
            "warmup": 4
        }


def test_a_record_contains_the_last_steps_of_the_norms_phases(corpus, tmp_path):
    values = ("norm=prepbn", "norm.blend_steps=6", "budget.steps=8", "validate.every=4")
    record = train(compose(tiny(corpus, tmp_path, *values, "norm@decoder_norm=un")))
    assert record.milestones == {
        "ProgressiveRepBatchNorm/blend": 6,
        "UnifiedNorm/warmup": 2,
        "UnifiedNorm/correction": 2,
    }
    assert RunRecord.from_json(record.to_json(), origin="here").milestones == record.milestones


def test_a_run_with_every_stateful_norm_resumes_bitwise(corpus, tmp_path):
    """All of them are in one model, each at a different place."""
    sites = ",".join(f"{place}:{norm}" for place, norm in zip(PLACES, STATEFUL, strict=False))
    changes = ("model.encoder_layers=6", "model.decoder_layers=3", f"sites={{{sites}}}")
    changes = (*changes, "budget.steps=8")
    whole = build_trainer(corpus, tmp_path / "a", *changes)
    for _ in range(6):
        whole.step()
    first = build_trainer(corpus, tmp_path / "b", *changes)
    for _ in range(3):
        first.step()
    assert {type(norm) for norm in running_norms(first.model)} == {
        type(make_norm(option, 8)) for option in STATEFUL
    }
    first.save()
    resumed = build_trainer(corpus, tmp_path / "b", *changes)
    resumed.resume(load_checkpoint(resumed.checkpoints.last))
    for _ in range(3):
        resumed.step()
    torch.testing.assert_close(weights(resumed.model), weights(whole.model), rtol=0, atol=0)


def test_the_penalty_is_in_the_gradient_and_logged_separately(corpus, tmp_path):
    rows, losses, norms = [], [], []
    for name, size in (("with", 50.0), ("without", 0.0)):
        trainer = build_trainer(
            corpus,
            tmp_path / name,
            *("norm=rbn", f"norm.penalty_mean={size}", "norm.penalty_var=0.0"),
            *("observe.log_every=1", "accumulate=2"),
        )
        trainer.sinks = Rows()
        trainer.step()
        (row,) = trainer.sinks.rows
        rows.append(row)
        losses.append(row["train/loss"])
        norms.append(row["train/grad_norm"])
    assert rows[0]["train/penalty"] > 0 and "train/penalty" not in rows[1]
    assert losses[0] == losses[1] and norms[0] != norms[1]


@pytest.fixture
def device_waits(monkeypatch):
    """Return the reads from the device `meta`. It has no values, so `tolist` returns ones."""
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


def test_a_step_waits_for_the_device_only_when_a_row_is_logged(device_waits, monkeypatch):
    """This holds for all norms: they are in one model, each at a different place."""
    monkeypatch.setattr(probe_values, "_PACK_EVERY", 2)  # values are packed between rows
    sites = ",".join(map("{}:{}".format, PLACES, option_names("norm")))
    device = Runtime(torch.device("meta"), "fp32", Shard(0, 1))
    overrides = [*TOY, "model.encoder_layers=6", "model.decoder_layers=6", f"sites={{{sites}}}"]
    overrides += ["probe=full", "observe.log_every=5"]
    overrides += ["optim.fused=false"]  # fused kernels do not support `meta`
    trainer = start("all", to_dict(compose(overrides)), device).trainer
    for _ in range(3):
        trainer.step()
    assert trainer.counters.step == 4 and not device_waits
    trainer.step()
    assert device_waits[0] == (5, 3)  # per step: loss, penalty and gradient norm
    read = len(device_waits)
    trainer.step()  # begins with a copy of the state
    assert len(device_waits) == read
