"""A run that diverges has a record with the step, the reason and the first bad layer."""

import math
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

import normlab
from normlab.records.record import Outcome
from normlab.records.store import METRICS_FILE, RunStore, read_record, read_rows
from normlab.training import divergence
from normlab.training.divergence import Divergence, first_nonfinite_gradient, first_nonfinite_layer
from tests.tiny_runs import RunProcess, run, tiny
from tests.training.trainers import enter_rank, free_port

LAYER = "layers.0.feed_forward.fc1.weight"


@dataclass(frozen=True)
class Poison:
    """Sets a parameter to NaN before a step.

    With `rank`, the process becomes one of two ranks, and only the second gets the NaN.
    """

    step: int
    parameter: str
    rank: int | None = None
    port: int = 0

    def install(self) -> None:
        from normlab.training.trainer import StepBatches, Trainer

        if self.rank is not None:
            enter_rank(self.rank, 2, self.port)
        original = Trainer._backward

        def backward(trainer: Trainer, drawn: StepBatches) -> tuple[torch.Tensor, torch.Tensor]:
            if drawn.step == self.step and self.rank != 0:
                with torch.no_grad():
                    trainer.model.get_parameter(self.parameter).flatten()[0] = math.nan
            return original(trainer, drawn)

        setattr(Trainer, "_backward", backward)  # noqa: B010 - pyright compares the names of self


@pytest.fixture(scope="module")
def poisoned(corpus: Path, tmp_path_factory):
    """Return the folder, the command and the process of a run whose sixth step has a NaN."""
    folder = tmp_path_factory.mktemp("poisoned")
    argv = ["train", *tiny(corpus, folder / "runs", "norm=bn")]
    return folder, argv, run(argv, folder / "log", Poison(6, f"decoder.{LAYER}").install)


def test_a_nan_is_recorded_with_its_step_reason_and_first_layer(poisoned):
    folder, _, process = poisoned
    assert process.status == 0, process.output
    assert "diverged at step 6" in process.output
    (record,) = normlab.load_records(folder / "runs")
    layer = f"decoder.{LAYER}".removesuffix(".weight")
    assert record.outcome == Outcome("diverged", 6, reason="loss is nan", layer=layer)


def test_a_diverged_run_has_its_validation_scores_and_last_steps_but_no_test_scores(poisoned):
    (record,) = normlab.load_records(poisoned[0] / "runs")
    assert record.budget.steps == 5  # the sixth was not taken
    assert "valid/loss" in record.scores
    assert not any(name.startswith("test/") for name in record.scores)
    assert record.last_steps["step"] == [1, 2, 3, 4, 5]
    rows = read_rows(RunStore(poisoned[0] / "runs").run_dir(record.config) / METRICS_FILE)
    assert record.last_steps["train/grad_norm"][1] == rows[0]["train/grad_norm"]  # of step 2
    assert record.last_steps["stability/padding/share"][0] is not None


def test_a_diverged_run_is_not_run_again(poisoned):
    folder, argv, _ = poisoned
    again = run(argv, folder / "log")
    assert again.status == 0
    assert "diverged at step 6" in again.output


@pytest.mark.parametrize("every", [1, 5, 50])
def test_the_logging_interval_does_not_change_when_a_run_diverges(
    every: int, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(divergence, "WINDOW", 7)
    logged = (f"observe.log_every={every}", "validate.every=12", "divergence_factor=0.5")
    record = normlab.train(normlab.compose(tiny(corpus, tmp_path, *logged)))
    assert (record.outcome.status, record.outcome.step) == ("diverged", 7)
    assert "mean loss" in str(record.outcome.reason) and record.outcome.layer is None


def test_steps_after_the_last_window_are_logged_and_judged(corpus: Path, tmp_path: Path):
    last = ("budget.steps=5", "observe.log_every=2", "validate.every=100", "divergence_factor=0.5")
    record = normlab.train(normlab.compose(tiny(corpus, tmp_path, *last)))
    assert (record.outcome.status, record.outcome.step) == ("diverged", 5)
    rows = read_rows(RunStore(tmp_path).run_dir(record.config) / METRICS_FILE)
    assert [row["step"] for row in rows] == [2, 4, 5]


def steps_with_high_loss(losses: list[float], *, resumed_at: int | None = None) -> list[int]:
    """Return the steps after which the mean loss was too high."""
    state, high = Divergence(3.0, torch.device("cpu")), []
    one = torch.ones((), dtype=torch.float64)
    for step, loss in enumerate(losses, 1):
        state.add(step, torch.tensor([loss, 0.0], dtype=torch.float64), one)
        assert state.read() == [(step, loss, 0, 1)] and state.read() == []
        state.end_window(step, last=step == len(losses))
        if verdict := state.high():
            high.append(verdict.step)
        if step == resumed_at:
            saved, state = state.state_dict(), Divergence(3.0, torch.device("cpu"))
            state.load_state_dict(saved)
    assert state.first_loss == losses[0]
    return high


def test_a_window_is_judged_by_its_mean_loss_even_if_the_run_was_interrupted_in_it():
    whole = divergence.WINDOW
    losses = [1.0] * whole + [2.9] * (whole - 1) + [9.0] + [2.9] * (whole // 2) + [3.5]
    for resumed_at in (None, whole + 3):
        assert steps_with_high_loss(losses, resumed_at=resumed_at) == [2 * whole]
    assert steps_with_high_loss([1.0, 1.0, 8.0]) == [3]


def test_a_nan_on_one_rank_ends_both_ranks(corpus: Path, tmp_path: Path):
    """With synced statistics, every rank must look for the layer, or one would wait forever."""
    argv = ["train", *tiny(corpus, tmp_path / "runs", "norm=bn", "batch_size=4")]
    port = free_port()
    poisons = [Poison(2, f"encoder.{LAYER}", rank=rank, port=port) for rank in (0, 1)]
    ranks = [
        RunProcess(argv, tmp_path / f"log{poison.rank}", prepare=poison.install)
        for poison in poisons
    ]
    ended = [rank.wait() for rank in ranks]
    assert [end.status for end in ended] == [0, 0], ended
    (folder,) = (path.parent for path in (tmp_path / "runs").rglob("record.json"))
    outcome = read_record(folder).outcome
    assert (outcome.status, outcome.step) == ("diverged", 2)
    assert outcome.layer is not None


def test_the_reported_layer_is_the_first_to_compute_a_nonfinite_value():
    bad = nn.Linear(2, 2)
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(bad, nn.ReLU()), nn.Linear(2, 2))
    x = torch.ones(1, 2)
    assert first_nonfinite_layer(model, lambda: model(x)) is None
    with torch.no_grad():
        bad.bias[0] = math.inf
    assert first_nonfinite_layer(model, lambda: model(x)) == "1.0"
    assert not any(module._forward_hooks for module in model.modules())


def test_the_reported_gradient_is_the_nonfinite_one_nearest_the_loss():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    model(torch.ones(1, 2)).sum().backward()
    assert first_nonfinite_gradient(model) is None
    for name in ("0.weight", "1.weight"):
        gradient = model.get_parameter(name).grad
        assert gradient is not None
        gradient[0, 0] = math.nan
    assert first_nonfinite_gradient(model) == "1.weight"
