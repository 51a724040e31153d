"""What is counted while training is measured: tokens, FLOP, figures of the report. No time."""

import json

import pytest
import torch

from normlab.bench import train
from normlab.bench.clock import Clock, Span, seconds_since_process_start
from normlab.bench.peak import Peak, ProductShape, model_shapes
from normlab.bench.profile import OTHER, kind_of, profile_steps
from normlab.bench.work import bench_config
from normlab.cli import main as cli
from normlab.commands.bench.probes import VARIANTS
from normlab.registry import option_names
from normlab.train.runtime import Runtime
from tests.bench.small import TOY


def test_useful_flop_by_hand():
    # 3 layers of width 256 and 1024, 8000 words, as many source as target tokens:
    #   encoder 3 (4 * 65,536 + 2 * 262,144) = 2,359,296 weights
    #   decoder 3 (8 * 65,536 + 2 * 262,144) = 3,145,728
    #   output  8000 * 256                   = 2,048,000
    small = bench_config([])
    found = train.useful_flop(small, source_per_target=1.0, vocab=8000)
    assert found == 6 * (2_359_296 + 3_145_728 + 2_048_000)
    half = train.useful_flop(small, source_per_target=0.5, vocab=8000)
    assert found - half == 6 * 2_359_296 / 2
    large = bench_config(["model=iwslt"])
    assert train.useful_flop(large, source_per_target=1.0, vocab=8000) / 1e6 == pytest.approx(
        213, abs=1
    )


@pytest.mark.parametrize(
    ("overrides", "products"),
    [
        (
            ("task=cifar10", "model.width=4", "batch_size=8"),
            9 * (1024 * (3 * 4 + 2 * 16) + 256 * (32 + 64) + 64 * (128 + 256)) + 160,
        ),
        (("task=digits", "model=lstm", "model.dim=4", "model.read=rows"), 8 * 16 * (8 + 4) + 40),
    ],
)
def test_models_without_a_formula_are_counted(overrides, products, tmp_path, capsys):
    sized = [*overrides, "norm=none", "precision=fp32", "device=cpu"]
    path = tmp_path / "found.json"
    asked = ["--steps", "1", "--intervals", "1", "--warmup", "1", "--json", str(path)]
    assert cli(["bench", "train", *sized, *asked]) == 0
    (run,) = json.loads(path.read_text())["runs"]
    assert run["useful_mflop_per_token"] == pytest.approx(6 * products / 1e6)
    assert "pictures/s" in capsys.readouterr().out


def test_the_default_is_model_b_on_the_synthetic_corpus():
    config = bench_config([])
    model = config["model"]
    assert (model["dim"], model["ffn_dim"], model["num_heads"]) == (256, 1024, 4)
    assert model["encoder_layers"] == model["decoder_layers"] == 3
    assert model["dropout"] == 0.3
    assert (config["max_tokens"], config["batch_size"]) == (2048, None)
    assert config["task"]["label_smoothing"] == 0.1
    assert config["task"]["corpus"]["_target_"].endswith("SyntheticCorpus")
    assert config["choices"]["task"] == "synthetic"
    assert bench_config(["norm=bn"])["norm"]["_target_"].endswith("BatchNorm")
    assert bench_config(["model.dropout=0.1"])["model"]["dropout"] == 0.1
    assert bench_config(["task=toy"])["task"]["corpus"]["_target_"].endswith("ToyCorpus")


def test_an_interval_counts_what_the_batches_hold():
    runtime = Runtime.start(device="cpu", precision="fp32", threads=1)
    contender = train.start("ln", bench_config(TOY), runtime)
    task = contender.trainer.task
    again = task.train_batches(runtime.world, 1)
    next(again)  # the first step, taken by start
    batches = [next(again) for _ in range(3)]
    found = contender.take(3, Clock(runtime.device))
    assert contender.trainer.progress.step == 4
    assert found.steps == 3
    assert found.target_tokens == sum(int(b.tgt_valid.sum()) for b in batches)
    assert found.source_tokens == sum(int(b.source_valid.sum()) for b in batches)
    assert found.positions == sum(b.source.numel() + b.tgt_in.numel() for b in batches)
    assert found.padding == found.positions - found.target_tokens - found.source_tokens


def test_figures_are_medians_of_intervals():
    runtime = Runtime.start(device="cpu", precision="fp32", threads=1)

    def contender(name, rates):
        return train.Measured(
            name=name,
            config=bench_config([]),
            vocab=8000,
            intervals=[
                train.Interval(Span(2.0, 1.0), 1, rate, rate, 2 * rate + 10, 10) for rate in rates
            ],
        )

    found = train.report(
        [contender("ln", [100, 400, 200]), contender("bn", [50, 100, 180])], [4e9, 2e9], runtime
    )
    first, second = found["runs"]
    assert first["tokens_per_second"] == {"median": 100, "min": 50, "max": 200, "n": 3}
    assert first["tokens_per_busy_second"]["median"] == 200
    assert first["ratio_to_first"] == 1
    assert second["ratio_to_first"] == 0.5  # of 0.5, 0.25, 0.9: turn by turn
    assert first["padding_share"] == 30 / (2 * 700 + 30)
    flop = train.useful_flop(bench_config([]), source_per_target=1.0, vocab=8000)
    assert first["share_of_peak"] == pytest.approx(200 * flop / 3e9)


def test_the_peak_takes_the_products_of_the_model():
    shapes = model_shapes(tokens=8, dim=4, ffn_dim=16, vocab=32)
    assert [shape.flop for shape in shapes] == [256, 1024, 1024, 2048]
    peak = Peak([ProductShape(8, 4, 4)], device=torch.device("cpu"), dtype=torch.float32)
    assert peak.measure(seconds=0.001) > 0
    assert len(peak.rates) == 1


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::mm", "products"),
        ("aten::addmm", "products"),
        ("aten::bmm", "attention"),
        ("aten::native_layer_norm", "normalization"),
        ("_StandardizeBackward", "normalization"),
        ("_LabelSmoothedCrossEntropy", "loss"),
        ("Optimizer.step#AdamW.step", "optimizer"),
        ("aten::copy_", "copies and casts"),
        ("aten::relu", None),
    ],
)
def test_operators_have_kinds(name, kind):
    assert kind_of(name) == kind


def test_a_profile_adds_up_to_kinds():
    layer = torch.nn.Linear(64, 64)
    found = profile_steps(lambda: torch.relu(layer(torch.ones(64, 64))), steps=2)
    assert set(found["milliseconds_per_step"]) >= {"products", OTHER}
    (relu,) = [item for item in found["operators"] if item["name"] == "aten::relu"]
    assert relu["calls"] == 1
    assert relu["kind"] == OTHER


def test_the_command_writes_its_report(tmp_path, capsys):
    path = tmp_path / "speed.json"
    short = ["--intervals", "2", "--steps", "1", "--warmup", "1"]
    assert cli(["bench", "train", *TOY, "--norms", "ln,bn", *short, "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert found["format"] == "normlab.bench.train/1"
    assert set(found) == {
        "format",
        "environment",
        "overrides",
        "peak_gflop_per_second",
        "peak_memory_bytes",
        "runs",
        "start_to_first_step_seconds",
    }
    assert [run["name"] for run in found["runs"]] == ["ln", "bn"]
    assert found["runs"][0]["tokens_per_second"]["n"] == 2
    assert found["environment"]["threads"] == 1
    assert found["environment"]["precision"] == "fp32"
    assert found["peak_memory_bytes"] > 1 << 20
    text = capsys.readouterr().out
    assert "tokens/s" in text and "GFLOP/s" in text and "torch " in text


def test_counts_below_one_are_refused(capsys):
    assert cli(["bench", "train", "--intervals", "0"]) != 0
    assert "--intervals=0 must be at least 1" in capsys.readouterr().err


def test_the_age_of_a_process_grows():
    first = seconds_since_process_start()
    if first is None:
        pytest.skip("this system does not tell when a process began")
    assert 0 < first <= seconds_since_process_start()


def test_probes_are_measured_in_three_sets():
    sets = {name: bench_config([*TOY, *own]) for name, own in VARIANTS.items()}
    probes = {name: set(config["observe"]["probe"]) for name, config in sets.items()}
    assert probes["no probe"] == set()
    assert probes["no probe"] < probes["default"] < probes["full"]
    assert probes["full"] == set(option_names("probe")) - {"full"}
