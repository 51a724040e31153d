"""Training speed is counted in target tokens, and compared with the machine's peak."""

import json

import pytest
import torch

from normlab.cli import main as cli
from normlab.config.compose import compose
from normlab.config.run_config import to_dict
from normlab.training import speed
from normlab.training.runtime import Runtime
from normlab.training.speed import Span, StepClock, flop_per_token, peak, start
from tests.bench.small import TOY


@pytest.fixture(scope="module")
def runtime():
    return Runtime.start(device="cpu", precision="fp32", threads=1)


def test_a_measurement_counts_the_target_tokens_of_its_steps(runtime):
    steps = start("ln", to_dict(compose([*TOY, "accumulate=2"])), runtime)
    again = steps.trainer.task.train_batches(runtime.world, 1)
    batches = [next(again) for _ in range(8)]
    span, tokens = steps.take(3, StepClock(runtime.device))
    assert steps.trainer.counters.step == 4  # `start` has taken one
    assert tokens == sum(len(batch.tgt_out) for batch in batches[2:])
    assert span.wall > 0 and steps.unit == "tokens"


@pytest.mark.parametrize(
    ("overrides", "products"),
    [
        (
            ("task=digits", "model=resnet8", "model.width=4"),
            9 * (64 * (4 + 2 * 16) + 16 * (32 + 64) + 4 * (128 + 256)) + 160,
        ),
        (("task=digits", "model=lstm", "model.dim=4", "model.read=rows"), 8 * 16 * (8 + 4) + 40),
    ],
)
def test_training_takes_six_operations_per_weight_and_position(overrides, products, runtime):
    config = to_dict(compose([*overrides, "batch_size=8", "norm=none", "device=cpu"]))
    assert flop_per_token(start("", config, runtime).trainer) == 6 * products


def test_the_peak_is_the_fastest_matrix_product_with_the_models_shapes(runtime, monkeypatch):
    monkeypatch.setattr(speed.StepClock, "read", lambda clock: Span(1.0, 1.0))
    monkeypatch.setattr(speed.time, "perf_counter", iter(range(99)).__next__)
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Linear(5, 4))
    monkeypatch.setattr(speed, "_PEAK_SECONDS", 1.5)  # each ends after one product of 2,048 rows
    assert peak(model, runtime) == 2 * 2048 * 5 * 4


def test_doctor_with_speed_measures_training(capsys, monkeypatch):
    for name in ("_WARM_UP", "_MEASUREMENTS", "_STEPS"):
        monkeypatch.setattr(speed, name, 1)
    assert cli(["doctor", "--speed", *TOY, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tokens_per_second"]["n"] == 1 and found["precision"] == "fp32"
    assert found["share_of_peak"] > 0 and found["peak_gflop_per_second"] > 0.1
    assert cli(["doctor", "--speed", *TOY]) == 0
    text = capsys.readouterr().out
    assert "tokens per second of training" in text and "% of this machine's peak" in text
    assert max(map(len, text.splitlines())) <= 80
    assert cli(["doctor", "norm=bn"]) == 1
    assert "norm=bn is a setting for --speed; add --speed" in capsys.readouterr().err
