"""The gradient and the update of one step, and what must not change them."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

import normlab
from normlab.config.folders import CONFIG_DIR
from normlab.config.instantiation import instantiate
from normlab.config.registry import option_names
from normlab.config.run_config import to_dict
from normlab.distributed.process_group import is_main
from normlab.norms.running import running_norms
from normlab.probes.base import Probe, ProbeGroup, StepView
from normlab.training.checkpoint import load_checkpoint
from normlab.training.optimizer import optimizer_kinds
from tests.tiny_runs import QUICK, tiny
from tests.training.trainers import (
    EXACT,
    build_trainer,
    largest_difference,
    on_ranks,
    trainer_of,
    weights,
)


def first_gradient(corpus: Path, folder: Path, *overrides: str) -> torch.Tensor:
    trainer = build_trainer(corpus, folder, *EXACT, *overrides)
    trainer.step()
    grads = [parameter.grad for parameter in trainer.model.parameters()]
    return torch.cat([grad.flatten() for grad in grads if grad is not None])


def test_two_half_batches_give_the_gradient_of_one_batch_except_with_batch_norm(
    corpus: Path, tmp_path: Path
):
    for norm in ("ln", "bn"):
        whole = first_gradient(corpus, tmp_path, f"norm={norm}", "batch_size=8")
        halves = first_gradient(corpus, tmp_path, f"norm={norm}", "batch_size=4", "accumulate=2")
        assert ((halves - whole).norm() < 1e-12 * whole.norm()).item() == (norm == "ln")


def state_after_a_step(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    trainer = trainer_of(config, folder)
    trainer.step()
    return weights(trainer.model)


def test_two_ranks_give_the_same_weights_as_one_process(corpus: Path, tmp_path: Path):
    """This includes Admin's calibration, which sums over ranks."""

    def config(batch_size: int) -> dict[str, Any]:
        # Adam would magnify rounding errors
        own = ("placement=admin", "norm=bn", "optim=sgd", f"batch_size={batch_size}")
        return to_dict(normlab.compose(tiny(corpus, corpus, *EXACT, *own)))

    alone = state_after_a_step(config(8), tmp_path)
    first, second = on_ranks(2, state_after_a_step, config(4), tmp_path)
    assert largest_difference(first, second) == 0
    assert largest_difference(first, alone) < 1e-12


def test_rates_by_kind_scale_the_learning_rate_and_a_rate_of_zero_freezes(
    corpus: Path, tmp_path: Path
):
    rates = ("+optim.groups.norm.rate=0", "+optim.groups.embedding.rate=0.5", "optim=sgd")
    trainer = build_trainer(corpus, tmp_path, *rates)
    before = weights(trainer.model)
    trainer.step()
    found = {group.get("rate", 1.0): group["lr"] for group in trainer.optimizer.param_groups}
    assert found == {rate: rate * trainer.schedule(1) for rate in (1.0, 0.0, 0.5)}
    after = weights(trainer.model)
    for parameter, kind in optimizer_kinds(trainer.model):
        (name,) = (name for name, p in trainer.model.named_parameters() if p is parameter)
        assert kind != "norm" or torch.equal(after[name], before[name]), name
    assert any(not torch.equal(after[name], before[name]) for name in after)


def test_each_micro_batch_is_counted_once_by_running_statistics(corpus: Path, tmp_path: Path):
    """With momentum m, the first of two batches has weight m (1 - m) and the second m."""
    momentum = 0.25
    values = (*EXACT, "norm=bn", f"norm.momentum={momentum}", "batch_size=4", "accumulate=2")
    trainer = build_trainer(corpus, tmp_path, *values)
    (norm, *_) = running_norms(trainer.model)
    means = []

    def note(module, arguments):
        x, tokens = arguments
        means.append(tokens.pack(x).mean(0))

    norm.register_forward_pre_hook(note)
    trainer.step()
    assert len(means) == 2
    expected = momentum * (1 - momentum) * means[0] + momentum * means[1]
    torch.testing.assert_close(norm.running_mean[0], expected.detach())


class Watch(Probe):
    norm = 0.0

    def before_update(self, view: StepView) -> None:
        self.norm = view.grad_norm.item()


def test_clipping_bounds_the_update_but_not_the_logged_norm(corpus: Path, tmp_path: Path):
    values = ("optim=sgd", "optim.momentum=0.0", "optim.lr=0.5", "schedule=constant")
    values += ("schedule.warmup=0", "clip_grad=0.01")
    trainer = build_trainer(corpus, tmp_path, *EXACT, *values)
    watch = Watch()
    trainer.probes = ProbeGroup({"watch": watch})
    before = torch.nn.utils.parameters_to_vector(trainer.parameters).detach().clone()
    trainer.step()
    after = torch.nn.utils.parameters_to_vector(trainer.parameters).detach()
    assert watch.norm > 0.01
    assert (after - before).norm().item() == pytest.approx(0.5 * 0.01, rel=1e-4)


def parameters_after_a_run(corpus: Path, runs: Path, *overrides: str) -> dict[str, torch.Tensor]:
    record = normlab.train(normlab.compose(tiny(corpus, runs, *QUICK, *overrides)))
    assert record.finished
    (last,) = runs.rglob("last.pt")
    return load_checkpoint(last)["model"]


def all_probes_at_every_step() -> list[str]:
    """Return the overrides that make every probe measure every step."""
    nodes = ((CONFIG_DIR / "probe" / f"{name}.yaml").read_text() for name in option_names("probe"))
    named = zip(option_names("probe"), nodes, strict=True)
    often = [f"observe.probe.{name}.every=1" for name, node in named if "\nevery:" in node]
    keys = ("independence.samples", "independence.tokens", "rank.tokens")
    few = [f"observe.probe.{key}=2" for key in keys]
    return ["probe=full", *often, *few]


def state_and_summary_on_a_rank(corpus: Path, folder: Path, overrides: list[str]):
    trainer = build_trainer(corpus, folder, *EXACT, "norm=bn", "batch_size=4", *overrides)
    config = to_dict(normlab.compose(tiny(corpus, folder, *overrides)))
    nodes = config["observe"]["probe"]
    built = {
        name: instantiate(node, f"observe.probe.{name}", Probe) for name, node in nodes.items()
    }
    trainer.probes = ProbeGroup(built)
    trainer.start()
    for _ in range(2):
        trainer.step()
    state = weights(trainer.model)
    return state, trainer.probes.summary()


def test_probes_do_not_change_training_on_two_ranks(corpus: Path, tmp_path: Path):
    watched = on_ranks(2, state_and_summary_on_a_rank, corpus, tmp_path, all_probes_at_every_step())
    alone = on_ranks(2, state_and_summary_on_a_rank, corpus, tmp_path, ["probe=[]"])
    for (state, figures), (plain, none) in zip(watched, alone, strict=True):
        assert largest_difference(state, plain) == 0
        assert figures["stability/tid/mean"] > 0 and not none
        # The task has no length change, and the model has no bounded norm.
        seen = {name.split("/")[1] for name in figures}
        assert seen == {*option_names("probe")} - {"length_change", "saturation"}
    tids = [figures["stability/tid/mean"] for _, figures in watched]
    assert tids[0] == tids[1]  # the statistics are synced


def outcome_on_a_rank(corpus: Path, folder: Path):
    """Train with a budget of one minute and a clock that is far ahead on the second rank."""
    trainer = build_trainer(
        corpus, folder, "norm=ln", "batch_size=4", "budget.steps=4", "budget.minutes=1"
    )
    if not is_main():
        count = trainer.counters.time
        trainer.counters.time = lambda seconds: count(seconds + 1000)
    outcome = trainer.fit()
    return outcome.status, outcome.step


def test_the_first_ranks_clock_decides_when_the_minutes_are_over(corpus: Path, tmp_path: Path):
    assert on_ranks(2, outcome_on_a_rank, corpus, tmp_path) == [("finished", 4)] * 2


def test_validation_does_not_change_training(corpus: Path, tmp_path: Path):
    """Weights, statistics, batch order and dropout are unchanged, even with recalibration."""
    values = ("norm=bn", "norm.eval_stats=recalibrated", "validate.recalibration_batches=2")
    values = (*values, "budget.steps=3")
    often = parameters_after_a_run(corpus, tmp_path / "often", *values, "validate.every=1")
    once = parameters_after_a_run(corpus, tmp_path / "once", *values, "validate.every=3")
    assert all(torch.equal(often[name], once[name]) for name in once)


def test_bf16_keeps_weights_and_statistics_in_float32(corpus: Path, tmp_path: Path):
    values = ("norm=bn", "precision=bf16", "budget.steps=3", "validate.every=3")
    state = parameters_after_a_run(corpus, tmp_path, *values)
    assert {v.dtype for v in state.values() if v.is_floating_point()} == {torch.float32}
    (record,) = normlab.load_records(tmp_path)
    assert record.environment["precision"] == "bf16"
    reached = {name for name in record.scores if "_to_converge" in name}  # the run is too short
    assert all(math.isfinite(record.scores[name].value) for name in record.scores.keys() - reached)


def logged(folder: Path, score: str):
    """Return the rows of a run that have the score."""
    text = (folder / "metrics.jsonl").read_text(encoding="utf-8")
    return [row for row in map(json.loads, text.splitlines()) if score in row]


def test_training_rows_contain_step_learning_rate_and_padding(undisturbed: Path):
    trained = logged(undisturbed, "train/loss")
    assert [row["step"] for row in trained] == [2, 4, 6, 8, 10, 12]
    for row in trained:
        rise, fall = row["step"] / 4, math.sqrt(4 / row["step"])
        assert row["train/lr"] == pytest.approx(0.01 * min(rise, fall))
        assert 0 < row["train/padding_share"] < 1


def test_the_record_has_the_budget_of_the_last_row_and_one_hypothesis_per_sentence(undisturbed):
    record = normlab.load_run(undisturbed).record
    assert record.budget.steps == 12
    assert record.budget.tokens == logged(undisturbed, "train/loss")[-1]["tokens"]
    assert record.scores["test/bleu"].signature
    assert len((undisturbed / "hypotheses.txt").read_text(encoding="utf-8").splitlines()) == 6


def test_the_record_has_the_scores_of_the_last_and_of_the_best_validation(undisturbed: Path):
    validated = logged(undisturbed, "valid/loss")
    record = normlab.load_run(undisturbed).record
    assert [row["step"] for row in validated] == [4, 8, 12]
    assert record.scores["valid/loss"].value == validated[-1]["valid/loss"]
    assert record.scores["valid/bleu"].value == validated[-1]["valid/bleu"]
    best = min(validated, key=lambda row: row["valid/loss"])
    assert record.scores["valid/best_loss/bleu"].value == best["valid/bleu"]
    assert record.weights["average"] == 12 and record.weights["best_loss"] == best["step"]


@pytest.mark.parametrize("limit", ["tokens=400", "epochs=1"])
def test_a_run_ends_at_each_limit(limit: str, corpus: Path, tmp_path: Path):
    values = ("budget.steps=null", "validate.every=100", "observe.log_every=1", f"budget.{limit}")
    record = normlab.train(normlab.compose(tiny(corpus, tmp_path, *QUICK, *values)))
    assert record.outcome.status == "finished"
    assert record.outcome.reason == limit.split("=")[0]
    (metrics,) = tmp_path.rglob("metrics.jsonl")
    rows = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    tokens = [row["tokens"] for row in rows if "train/loss" in row]
    assert tokens[-1] == record.budget.tokens
    if limit == "tokens=400":
        assert tokens[-2] < 400 <= tokens[-1]
    else:
        assert record.outcome.step == 7  # 40 sentences in batches of 6
    assert "test/bleu" in record.scores
