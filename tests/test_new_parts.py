"""A new norm, placement, probe, source of images and task: one file and one config each.

The norm is that of the how-to. The files are loaded as if they were in the package.
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
from tests.tiny_runs import tiny, write_corpus

PAGE = (ROOT / "docs" / "howto" / "own_norm.md").read_text()
(NEW_NORM,), (NEW_CONFIG,) = fenced(PAGE, "python"), fenced(PAGE, "yaml")
PLACEMENT = '''
from normlab.placements.base import Placement
from normlab.placements.pre import PreResidual


class TwiceResidual(PreResidual):
    """y = x + 2 dropout(branch(norm(x)))."""

    def forward(self, x, stream, branch):
        return x + 2 * self.dropout(branch(self.norm(x, stream)))


class Twice(Placement):
    def residual(self, norms, dim, place):
        return TwiceResidual(norms.at(place.path, dim), self.dropout)
'''
PLACEMENT_CONFIG = """# normlab train placement=twice
# Pre-norm with branches that count twice.
_target_: normlab.placements.twice.Twice
"""
PROBE = """
from typing import ClassVar

from normlab.probes.base import Probe


class Largest(Probe):
    at: ClassVar[tuple[str, ...]] = ("residual",)

    def measure(self, seen):
        return {"largest": seen.y.abs().max()}
"""
PROBE_CONFIG = """# @package observe.probe.largest
# normlab train probe=[largest]
# The largest output of a block.
_target_: normlab.probes.largest.Largest
every: 1
"""
SOURCE = '''
import numpy as np

from normlab.data.images import Images, ImageSource


class Stripes(ImageSource):
    """Pictures of 6 by 5 pixels whose rows or whose columns are alike."""

    licence = "none"
    classes = ("upright", "lying")
    label = "stripes"
    origin = "drawn"

    def __init__(self, *, valid_size: int) -> None:
        self.valid_size = valid_size

    def published(self):
        return {"train": _drawn(80, seed=1), "test": _drawn(40, seed=2)}


def _drawn(count: int, *, seed: int) -> Images:
    rng = np.random.default_rng(seed)
    pixels = np.empty((count, 6, 5, 1), np.uint8)
    pixels[::2] = rng.integers(256, size=(count // 2, 1, 5, 1))
    pixels[1::2] = rng.integers(256, size=(count // 2, 6, 1, 1))
    return Images(pixels, np.arange(count) % 2)
'''
TASK_CONFIG = """# normlab train task=stripes norm=bn
# Stripes, upright or lying.
defaults:
  - override /model@_global_.model: resnet8
  - override /optim@_global_.optim: sgd
  - _self_
_target_: normlab.tasks.images.Classification
source: {_target_: normlab.data.stripes.Stripes, valid_size: 20}
augmentation: {_target_: normlab.data.images.Augmentation, shift: 0, flip: false}
label_smoothing: 0.0
batch_size: ${batch_size}
max_tokens: ${max_tokens}
eval_batch_size: 16
test_batch_sizes: [1]
test_eval_stats: [batch, recalibrated]
"""
PARTS = {
    ("norms.peak", "norm/peak"): (NEW_NORM, NEW_CONFIG),
    ("placements.twice", "placement/twice"): (PLACEMENT, PLACEMENT_CONFIG),
    ("probes.largest", "probe/largest"): (PROBE, PROBE_CONFIG),
    ("data.stripes", "task/stripes"): (SOURCE, TASK_CONFIG),
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


def trained(runs, *words):
    """Train and return the record."""
    assert main(["train", *words, f"runs_dir={runs}"]) == 0
    (path,) = runs.rglob("record.json")
    record = json.loads(path.read_text())
    assert record["outcome"]["status"] == "finished"
    return record


def test_a_new_norm_is_listed_built_and_checked(project, capsys):
    assert main(["list", "norm", "--json"]) == 0
    listed = {item["norm"]: item["what it is"] for item in json.loads(capsys.readouterr().out)}
    assert listed["peak"] == "Each token over its largest magnitude."
    norm = normlab.make_norm("peak", 6, floor=0.5)
    x = torch.randn(2, 3, 6)
    y = norm(x, Stream(torch.ones(2, 3, dtype=torch.bool)))
    torch.testing.assert_close(y, x / x.abs().amax(-1, keepdim=True).clamp(min=0.5))
    assert norm.incremental and norm.batch_independent
    with pytest.raises(ValueError, match=r"norm\.floor=0: Expected `float` > 0\.0"):
        normlab.make_norm("peak", 6, floor=0)
    assert main(["norm", "check", "fresh", "peak"]) == 0
    assert "violated" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("peak", ("placement=twice", "probe=[largest]", "norm@embedding_norm=peak")),
        ("fresh", ("placement=post", "norm.eps=0.01", "norm@ffn_inner_norm=fresh")),
    ],
)
def test_a_new_norm_placement_and_probe_train(project, tmp_path, name, words):
    corpus, runs = write_corpus(tmp_path / "text"), tmp_path / "runs"
    given = tiny(corpus, runs, "budget.steps=4", "validate.every=2", "sink=[jsonl]", *words)
    record = trained(runs, f"norm={name}", *(w for w in given if not w.startswith("runs_dir=")))
    assert "test/bleu" in record["scores"]
    assert name == "fresh" or "stability/largest/largest" in record["stability"]


def test_a_task_of_new_images_trains(project, tmp_path):
    words = ("batch_size=20", "optim.lr=0.1", "schedule=constant", "schedule.warmup=1")
    words += ("budget.steps=20", "validate.every=20", "sink=[]", "observe.threads=1", "device=cpu")
    record = trained(tmp_path, "task=stripes", "norm=bn", "probe=[independence]", *words)
    assert record["data"]["label"] == "stripes"
    assert {"test/accuracy", "test/eval_stats_batch/accuracy"} <= set(record["scores"])
    assert any(name.startswith("stability/independence/icc/") for name in record["stability"])
