"""`scripts/bench`: what the benchmarks count and refuse. No test depends on a measured time."""

import json
from functools import partial

import pytest

from tests.bench.small import MODEL

from bench import common, norms, train  # isort: skip  (scripts/ is put on the path above)
from bench.__main__ import SUBJECTS, main  # isort: skip
from bench.alone import measure  # isort: skip
from bench.corpus import SyntheticCorpus  # isort: skip


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """A small corpus and short measurements."""
    monkeypatch.setattr(common, "SyntheticCorpus", partial(SyntheticCorpus, pairs=600))
    monkeypatch.setattr("normlab.training.speed._PEAK_SECONDS", 1e-3)
    monkeypatch.setattr(norms, "measure", lambda *a, **how: measure(*a, **{**how, "seconds": 1e-3}))


def written(arguments, tmp_path):
    path = tmp_path / "found.json"
    assert main([*arguments, "--json", str(path)]) == 0
    return json.loads(path.read_text("utf-8"))


def test_the_help_lists_every_benchmark(capsys):
    assert main([]) == 0
    page = capsys.readouterr().out
    assert all(f"\n{name} " in page for name in SUBJECTS)
    assert main(["speed"]) == 2


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["train", "--intervals", "0"], "--intervals=0 must be at least 1"),
        (["decode", "task=mlm"], "task="),
        (["peers", "nowhere", "--rounds", "0"], "--rounds=0"),
        (["peers", "nowhere", "--only", "nobody"], "nobody"),
    ],
)
def test_invalid_arguments_are_named_in_the_error(arguments, named, capsys):
    overrides = MODEL if arguments[0] in ("decode", "train") else ()
    assert main([*arguments, *(overrides if "task=mlm" not in arguments else ())]) == 1
    assert named in capsys.readouterr().err


def test_the_train_benchmark_compares_the_speed_of_several_norms(tmp_path, capsys):
    short = ["--intervals", "2", "--steps", "1", "--warmup", "1", "--pairs", "600"]
    found = written(["train", *MODEL, "--norms", "ln,bn", *short, "--notes"], tmp_path)
    assert [run["name"] for run in found["runs"]] == ["ln", "bn"]
    assert found["runs"][0]["ratio_to_first"] == 1
    assert found["runs"][1]["tokens_per_second"]["n"] == 2
    assert found["environment"]["threads"] == 1 and found["peak_memory_bytes"] > 1 << 20
    text = capsys.readouterr().out
    assert "tokens/s" in text and "GFLOP/s" in text
    probes = {
        name: set(common.bench_config([*MODEL, *own])["observe"]["probe"])
        for name, own in train.PROBES.items()
    }
    assert probes["no probe"] == set() < probes["default"] < probes["full"]


def test_the_decode_benchmark_reports_the_sentences_of_all_batches(tmp_path):
    asked = ["--norms", "ln,bn", "--batches", "2", "--sentences", "3", "--rounds", "2"]
    found = written(["decode", *MODEL, *asked, "--length", "5"], tmp_path)
    assert [run["name"] for run in found["runs"]] == ["ln", "bn"]
    assert found["runs"][0]["sentences"] == 6
    assert found["runs"][1]["sentences_per_second"]["n"] == 2


def test_the_norms_benchmark_measures_norms_alone_in_a_model_and_after_folding(tmp_path):
    found = written(["norms", *MODEL, "--norms", "ln,bn", "--rounds", "1"], tmp_path)
    names = {group: [run["name"] for run in runs] for group, runs in found["groups"].items()}
    assert names["alone, training"] == names["alone, evaluation"] == ["ln", "bn"]
    assert names["model, 1 sentence"] == names["model, 32 sentences"] == ["ln", "bn", "bn folded"]
    assert norms.STEP not in names


def test_the_norms_benchmark_measures_an_image_model_eager_and_compiled(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(norms, "make_fast", lambda *_: None)
    monkeypatch.setattr("normlab.training.speed.make_fast", lambda *_: None)
    sizes = ["model=vit", "model.dim=16", "model.ffn_dim=32", "model.num_layers=1", "batch_size=4"]
    inner = "bn+norm@ffn_inner_norm=bn"
    asked = ["task=cifar10", *sizes, "--norms", inner, "--rounds", "1", "--compiled"]
    found = written(["norms", *asked], tmp_path)
    names = {group: [run["name"] for run in runs] for group, runs in found["groups"].items()}
    assert found["shape"] == "32 x 64 x 16"
    for suffix in ("", norms.COMPILED):
        assert names[norms.STEP + suffix] == names["alone, training"] == [inner]
        assert names[f"model, 1 picture{suffix}"] == [inner, f"{inner} folded"]
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
