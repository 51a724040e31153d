"""The subjects of `normlab bench`: what they count and what they refuse. No time is judged."""

import json

import pytest

from normlab.bench import decode, norms, process, train
from normlab.bench.work import bench_config
from normlab.cli import main as cli
from normlab.commands.bench import subjects
from normlab.norms.base import RunningNorm
from normlab.registry import option_names
from normlab.train.runtime import Runtime
from normlab.train.sinks.console import Console
from tests.bench.small import MODEL


@pytest.fixture(scope="module")
def runtime():
    return Runtime.start(device="cpu", precision="fp32", threads=1)


def written(arguments, tmp_path):
    path = tmp_path / "figures" / "found.json"
    assert cli(["bench", *arguments, "--json", str(path)]) == 0
    return json.loads(path.read_text("utf-8"))


def test_every_subject_describes_itself(capsys):
    assert cli(["bench"]) == 0
    page = capsys.readouterr().out
    assert all(f"\n  {name} " in page for name in subjects())
    assert {"train", "bar", "decode", "norms", "probes", "data", "startup"} <= set(subjects())


def test_no_such_subject_names_those_there_are(capsys):
    assert cli(["bench", "speed"]) == 1
    assert "'speed'" in (said := capsys.readouterr().err)
    assert "decode" in said


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["decode", "--rounds", "0"], "--rounds=0"),
        (["decode", "--batches", "99"], "lower --batches"),
        (["decode", "task=mlm"], "task="),
        (["data", "--pairs", "0"], "--pairs=0"),
        (["data", "task=mlm"], "task=translation"),
        (["norms", "--norms", "lm"], "lm"),
        (["norms", "task=mlm"], "bench train"),
        (["startup", "ls nothing", "--rounds", "1"], "ls nothing"),
    ],
)
def test_bad_input_is_named(arguments, named, capsys):
    overrides = MODEL if arguments[0] in ("decode", "norms") else []
    assert cli(["bench", *arguments, *(overrides if "task=mlm" not in arguments else [])]) == 1
    assert named in capsys.readouterr().err


def test_every_hypothesis_has_the_length_asked_for(runtime):
    sizes = {"batches": 2, "sentences": 5, "length": 7}
    decoder = decode.start("bn", bench_config([*MODEL, "norm=bn"]), runtime, **sizes)
    for batch in decoder.batches:
        assert [len(found.tokens) for found in decoder.decode(batch)] == [6] * 5  # and the end
    assert decoder.settings.beam == 5


def test_decoding_reports_sentences_of_all_batches(tmp_path):
    asked = ["--norms", "ln,bn", "--batches", "2", "--sentences", "3", "--rounds", "2"]
    found = written(["decode", *MODEL, *asked, "--length", "5"], tmp_path)
    assert [run["name"] for run in found["runs"]] == ["ln", "bn"]
    assert found["runs"][0]["sentences"] == 6
    assert found["runs"][0]["ratio_to_first"] == 1
    assert found["runs"][1]["sentences_per_second"]["n"] == 2


def test_the_bar_is_drawn_in_its_own_turns_alone(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(Console, "stage", lambda self, stage: drawn.append(stage))
    asked = ["--intervals", "2", "--steps", "3", "--warmup", "1"]
    found = written(["bar", *MODEL, *asked], tmp_path)
    assert [run["name"] for run in found["runs"]] == ["no bar", "bar"]
    assert [run["ratio_to_first"] == 1 for run in found["runs"]] == [True, False]
    assert len(drawn) == 1 + 2 * 3  # the steps of one of the two


def test_norms_are_measured_alone_and_in_a_model_folded_too(tmp_path):
    found = written(["norms", *MODEL, "--norms", "ln,bn", "--rounds", "1"], tmp_path)
    names = {group: [run["name"] for run in runs] for group, runs in found["groups"].items()}
    assert names[norms.TRAINING] == names[norms.EVALUATION] == ["ln", "bn"]
    assert names["model, 1 sentence"] == names["model, 32 sentences"] == ["ln", "bn", "bn folded"]
    assert norms.STEP not in names


def test_pictures_are_read_and_trained_on(tmp_path, monkeypatch, capsys):
    compiled = []
    monkeypatch.setattr(norms, "make_fast", lambda *_: compiled.append("read"))
    monkeypatch.setattr(train, "make_fast", lambda *_: compiled.append("trained on"))
    sizes = ["model=vit", "model.dim=16", "model.ffn_dim=32", "model.num_layers=1", "batch_size=4"]
    inner = "bn+norm@ffn_inner_norm=bn"
    asked = ["task=cifar10", *sizes, "--norms", f"ln,{inner}", "--rounds", "1", "--compiled"]
    found = written(["norms", *asked], tmp_path)
    names = {group: [run["name"] for run in runs] for group, runs in found["groups"].items()}
    assert found["shape"] == "32 x 64 x 16"
    for suffix in ("", norms.COMPILED):
        assert names[norms.STEP + suffix] == names[norms.TRAINING] == ["ln", inner]
        assert names[f"model, 1 picture{suffix}"] == ["ln", inner, f"{inner} folded"]
    assert compiled.count("trained on") == 2 and compiled.count("read") == 2 * 3
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_a_network_without_one_width_is_timed_at_the_shape_of_its_first_norm(tmp_path):
    asked = ["task=cifar10", "model=resnet8", "model.width=4", "batch_size=4", "--norms", "ln"]
    found = written(["norms", *asked, "--rounds", "1"], tmp_path)
    assert found["shape"] == "32 x 1024 x 4"


@pytest.mark.parametrize("name", option_names("norm"))
def test_any_norm_can_be_timed_alone(name, runtime):
    node = bench_config([f"norm={name}"])["norm"]
    groups = norms.alone({name: node}, norms.Shape(2, 6, 8), runtime)
    training, evaluation = (groups[kind][0] for kind in (norms.TRAINING, norms.EVALUATION))
    training.call()
    assert evaluation.call().shape == (2, 6, 8)


def test_the_folded_model_has_fewer_norms(runtime, monkeypatch):
    seen = []
    monkeypatch.setattr(norms, "fold", lambda model: seen.append(model))
    norms.in_a_model({"bn folded": bench_config([*MODEL, "norm=bn"])}, runtime, count=1)
    assert any(isinstance(part, RunningNorm) for part in seen[0].modules())


def test_a_residual_network_folds_and_a_recurrence_does_not():
    small = ("task=digits", "norm=bn")
    assert norms.folds(bench_config([*small, "model=resnet8", "model.width=4"]))
    assert not norms.folds(bench_config([*small, "model=lstm", "model.dim=4"]))


def test_data_is_prepared_anew_and_counted(tmp_path, monkeypatch):
    monkeypatch.setenv("NORMLAB_CACHE", str(tmp_path / "cache"))
    found = written(["data", "--pairs", "3000"], tmp_path)
    assert found["pairs"] == 3000
    assert found["stages"][0]["name"] == "read the text"
    assert all(
        stage["peak_memory_bytes"] >= found["memory_before_bytes"] for stage in found["stages"]
    )
    assert not list((tmp_path / "cache").rglob("*.npy"))  # the user's cache is left alone


def test_commands_take_turns_in_processes_of_their_own():
    found = process.in_turns([["ls", "norm"], ["--version"]], rounds=2)
    assert [len(item.seconds) for item in found] == [2, 2]
    assert found[0].lines > found[1].lines == 1
    for item in found:
        assert min(item.first_seconds) > 0 and max(item.first_seconds) < max(item.seconds)
    assert process.summary(found)[0]["command"] == "ls norm"
