"""A new norm, source of images, task and model: one file and one config each, and they train.

The norm is that of the how-to. The files are loaded as if they lay in the package, in this process.
"""

import importlib.util
import json
import shutil
import sys

import pytest
import torch

import normlab
from normlab.cli import main
from normlab.commands import norm as norm_command
from normlab.norms.base import Stream
from tests.docs.pages import ROOT, fenced
from tests.new_parts import (
    NEW_MODEL,
    NEW_MODEL_CONFIG,
    NEW_SOURCE,
    NEW_STATEFUL_CONFIG,
    NEW_STATEFUL_NORM,
    NEW_TASK_CONFIG,
)
from tests.tiny_runs import tiny, write_corpus

PAGE = (ROOT / "docs" / "howto" / "own_norm.md").read_text()
(NEW_NORM,), (NEW_CONFIG,) = fenced(PAGE, "python"), fenced(PAGE, "yaml")
PARTS = {
    ("norms.peak", "norm/peak"): (NEW_NORM, NEW_CONFIG),
    ("norms.running_peak", "norm/running_peak"): (NEW_STATEFUL_NORM, NEW_STATEFUL_CONFIG),
    ("data.stripes", "task/stripes"): (NEW_SOURCE, NEW_TASK_CONFIG),
    ("models.one_layer", "model/one_layer"): (NEW_MODEL, NEW_MODEL_CONFIG),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Return a folder whose configs have the new parts, with their modules imported."""
    place = tmp_path_factory.mktemp("project")
    shutil.copytree(ROOT / "configs", place / "configs")
    with pytest.MonkeyPatch.context() as patch:
        for module in ("registry", "compose"):
            patch.setattr(f"normlab.config.{module}.CONFIG_DIR", place / "configs")
        files = place / "fresh.py", place / "configs" / "norm" / "fresh.yaml"
        patch.setattr(norm_command, "places", lambda name: files)
        assert main(["norm", "new", "fresh"]) == 0
        parts = {**PARTS, ("norms.fresh", "norm/fresh"): tuple(path.read_text() for path in files)}
        for (module, option), (code, config) in parts.items():
            path = place / f"{module}.py"
            path.write_text(code.lstrip())
            (place / "configs" / f"{option}.yaml").write_text(config)
            spec = importlib.util.spec_from_file_location(f"normlab.{module}", path)
            assert spec is not None and spec.loader is not None
            patch.setitem(sys.modules, spec.name, importlib.util.module_from_spec(spec))
            spec.loader.exec_module(sys.modules[spec.name])
        yield place


def record_of(runs):
    (path,) = runs.rglob("record.json")
    record = json.loads(path.read_text())
    assert record["outcome"]["status"] == "finished"
    return record


def test_a_new_norm_is_listed_built_and_checked(project, capsys):
    assert main(["list", "norm", "--json"]) == 0
    listed = {item["name"]: item["description"] for item in json.loads(capsys.readouterr().out)}
    assert listed["peak"] == "Each token over its largest magnitude."
    norm = normlab.make_norm("peak", 6, floor=0.5)
    x = torch.randn(2, 3, 6)
    y = norm(x, Stream(torch.ones(2, 3, dtype=torch.bool)))
    torch.testing.assert_close(y, x / x.abs().amax(-1, keepdim=True).clamp(min=0.5))
    assert norm.incremental and norm.batch_independent
    with pytest.raises(ValueError, match=r"norm\.floor=0 does not fit: allowed is float above 0"):
        normlab.make_norm("peak", 6, floor=0)
    assert main(["norm", "check", "fresh", "peak", "running_peak"]) == 0
    assert "violated" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("peak", ("placement=pre", "norm.floor=0.01", "norm@embedding_norm=peak")),
        ("fresh", ("placement=post", "norm.eps=0.01", "norm@ffn_inner_norm=fresh")),
        ("running_peak", ("validate.average=2", "probe=full", "observe.probe.tid.every=1")),
    ],
)
def test_a_new_norm_trains_and_is_probed(project, tmp_path, name, words):
    corpus = write_corpus(tmp_path / "text")
    given = tiny(corpus, tmp_path / "runs", "budget.steps=4", "validate.every=2", *words)
    given = [word for word in given if not word.startswith("norm=")]
    assert main(["train", f"norm={name}", "sink=[jsonl]", *given]) == 0
    assert "test/bleu" in record_of(tmp_path / "runs")["scores"]
    (metrics,) = tmp_path.rglob("metrics.jsonl")
    rows = [row for row in map(json.loads, metrics.read_text().splitlines()) if "train/loss" in row]
    if name == "running_peak":
        assert rows and all(row["train/penalty"] > 0 for row in rows)
        assert any("tid/" in key for row in rows for key in row)


def test_new_images_and_a_new_model_with_a_convolution_train(project, tmp_path):
    words = ("batch_size=20", "optim.lr=0.1", "schedule=constant", "schedule.warmup=1")
    words += ("budget.steps=20", "validate.every=20", "sink=[]", "observe.threads=1", "device=cpu")
    runs = f"runs_dir={tmp_path}"
    assert main(["train", "task=stripes", "norm=running_peak", runs, "probe=full", *words]) == 0
    record = record_of(tmp_path)
    assert record["data"]["label"] == "stripes"
    assert {"test/accuracy", "test/eval_stats_batch/accuracy"} <= set(record["scores"])
    assert "stability/independence/icc/layer" in record["stability"]
