"""Norms, a placement, a probe, a task, a study and an experiment in a user's own folder.

The norm, the placement and the study are those of the how-to.
"""

import json
import os
import subprocess
import sys

import pytest
import torch

import normlab
from normlab.cli import main
from normlab.config import folders, registry
from normlab.norms.tokens import Tokens
from normlab.studies.process_pool import program
from tests.docs.pages import ROOT, fenced
from tests.tiny_runs import tiny, write_corpus

PAGE = (ROOT / "docs" / "howto" / "own_norm.md").read_text()
NEW_NORM, PLACEMENT = fenced(PAGE, "python")
NEW_CONFIG, NEW_STUDY, PLACEMENT_CONFIG = fenced(PAGE, "yaml")
PROBE = """
from typing import ClassVar

from normlab.probes.base import Probe


class Largest(Probe):
    kinds: ClassVar[tuple[str, ...]] = ("residual",)

    def measure_call(self, call):
        return {"largest": call.y.abs().max()}
"""
PROBE_CONFIG = """# @package observe.probe.largest
# normlab train probe=[largest]
# The largest output of a block.
_target_: largest.Largest
every: 1
"""
SOURCE = '''
import numpy as np

from normlab.data.images import Images, ImageSource


class Stripes(ImageSource):
    """Images of 6 by 5 pixels whose rows or columns are equal."""

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
_target_: normlab.tasks.images.ImageClassification
source: {_target_: stripes.Stripes, valid_size: 20}
augmentation: {_target_: normlab.data.images.Augmentation, shift: 0, flip: false}
label_smoothing: 0.0
batch_size: ${batch_size}
max_tokens: ${max_tokens}
eval_batch_size: 16
test_batch_sizes: [1]
test_eval_stats: [batch, recalibrated]
"""
FILES = {
    **{"peak.py": NEW_NORM, "norm/peak.yaml": NEW_CONFIG},
    **{"twice.py": PLACEMENT, "placement/twice.yaml": PLACEMENT_CONFIG},
    **{"largest.py": PROBE, "probe/largest.yaml": PROBE_CONFIG},
    **{"stripes.py": SOURCE, "task/stripes.yaml": TASK_CONFIG},
    "norm/bn_slow.yaml": "# Slow.\ndefaults: [bn]\nmomentum: 0.01\n",
    "experiment/own.yaml": "# Both.\n"
    "defaults: [override /norm: peak, override /placement: twice]\n",
    "study/peaks.yaml": NEW_STUDY,
}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Return a user's own folder, which is in NORMLAB_PATH."""
    place = tmp_path_factory.mktemp("project") / "中 own"
    for name, text in FILES.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text.lstrip())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])
        patch.setenv(folders.PATH, str(place))
        assert main(["norm", "new", "fresh", "--in", str(place)]) == 0
        yield place
    folders._own_folders.cache_clear()  # the next test's folders go to its own sys.path


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
    assert listed["peak"] == "Divide each token by its largest magnitude."
    norm = normlab.make_norm("peak", 6, floor=0.5)
    x = torch.randn(2, 3, 6)
    y = norm(x, Tokens(torch.ones(2, 3, dtype=torch.bool)))
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
def test_a_run_trains_with_a_new_norm_placement_and_probe(project, tmp_path, name, words):
    corpus, runs = write_corpus(tmp_path / "text"), tmp_path / "runs"
    given = tiny(corpus, runs, "budget.steps=4", "validate.every=2", "sink=[jsonl]", *words)
    record = trained(runs, f"norm={name}", *(w for w in given if not w.startswith("runs_dir=")))
    assert "test/bleu" in record["scores"]
    assert name == "fresh" or "stability/largest/largest" in record["stability"]


def test_a_task_with_a_new_image_source_trains(project, tmp_path):
    words = ("batch_size=20", "optim.lr=0.1", "schedule=constant", "schedule.warmup=1")
    words += ("budget.steps=20", "validate.every=20", "sink=[]", "observe.threads=1", "device=cpu")
    record = trained(tmp_path, "task=stripes", "norm=bn", "probe=[independence]", *words)
    assert record["data"]["label"] == "stripes"
    assert {"test/accuracy", "test/eval_stats_batch/accuracy"} <= set(record["scores"])
    assert any(name.startswith("stability/independence/icc/") for name in record["stability"])
    assert [*record["own_norms"]] == ["task/stripes"]


def test_records_list_user_files_and_an_error_says_which_of_them_is_missing(
    project, tmp_path, monkeypatch, capsys
):
    given = tiny(write_corpus(tmp_path / "text"), tmp_path / "runs", "budget.steps=2", "sink=[]")
    words = [word for word in given if not word.startswith("runs_dir=")]
    record = trained(tmp_path / "runs", "experiment=own", "probe=[largest]", *words)
    found = record["own_norms"]
    assert [*found] == ["peak", "placement/twice", "probe/largest"]
    assert found["peak"] == f"peak.py {registry.sha256(project / 'peak.py')[:10]}"
    (path,) = (tmp_path / "runs").rglob("record.json")
    assert main(["compare", str(tmp_path / "runs")]) == 0
    monkeypatch.delenv(folders.PATH)
    assert main(["compare", str(tmp_path / "runs")]) == 0
    capsys.readouterr()
    assert main(["inspect", str(path.parent)]) == 1
    told = capsys.readouterr().err
    assert "placement.option='twice' does not exist here" in told and "set NORMLAB_PATH" in told


def test_user_options_are_found_by_lists_studies_other_options_and_subprocesses(
    project, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert normlab.compose(["norm=bn_slow"]).norm.momentum == 0.01
    assert type(normlab.make_norm("bn_slow", 4)).__name__ == "BatchNorm"
    assert main(["list", "studies"]) == main(["explain", "peak"]) == 0
    assert "Layer norm and peak norm on the built-in corpus." in " ".join(
        capsys.readouterr().out.split()
    )
    assert main(["study", "plan", "peaks", "--commands"]) == 0
    assert f"norm=peak seed=1 observe.study=peaks 'include={project}'" in capsys.readouterr().out
    sizes = [f"task.corpus.{name}=8" for name in ("size", "valid_size", "test_size")]
    tiny_ = ["task=toy", "scale=smoke", "budget.steps=1", "validate.every=1", *sizes, "sink=[]"]
    assert main(["train", "-m", "norm=ln,peak", *tiny_]) == 0
    assert len([*tmp_path.rglob("record.json")]) == 2


def test_the_options_of_an_installed_package_are_found(tmp_path):
    written = {
        "site/their.dist-info/METADATA": "Metadata-Version: 2.1\nName: their\nVersion: 1\n",
        "site/their.dist-info/entry_points.txt": "[normlab.options]\nx = theirs.configs\n",
        "site/theirs/__init__.py": "print('imported')\n",
        "site/theirs/peaks.py": NEW_NORM,
        "site/theirs/configs/norm/theirs.yaml": NEW_CONFIG.replace(" peak.", " theirs.peaks."),
    }
    for name, text in written.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    places = f"{ROOT}{os.pathsep}{tmp_path / 'site'}"
    environment = {**os.environ, "PYTHONPATH": places}
    for words, imported in ((["list", "norms"], False), (["norm", "check", "theirs"], True)):
        command = [sys.executable, "-m", "normlab", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 0 and "theirs" in done.stdout, done.stderr
        assert ("imported" in done.stdout) is imported


@pytest.mark.parametrize(
    ("include", "told"),
    [
        ("", "include= is not a folder"),
        ("nowhere", "include=nowhere is not a folder"),
        ("own/norm", "include=own/norm has no options, such as norm/mine.yaml"),
        ("own", "norm=ln is in "),  # it has an `ln` too
        ("other", "norm: 'random.Mine' cannot be imported: "),  # Python's own `random`
        ("broken", "name 'undefined' is not defined"),
    ],
)
def test_an_unusable_include_folder_is_refused_in_one_line(include, told, tmp_path, capsys):
    for name, text in {
        "own/norm/ln.yaml": NEW_CONFIG,
        "other/norm/mine.yaml": "_target_: random.Mine\n",
        "other/random.py": "class Mine: ...\n",
        "broken/norm/mine.yaml": "_target_: broken_by_me.Mine\n",
        "broken/broken_by_me.py": "\n\nundefined\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])
        patch.setenv(folders.PATH, "")
        patch.chdir(tmp_path)
        assert main(["norm", "check", "mine", f"include={include}"]) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert told in said
    assert include != "other" or f"hides {tmp_path / 'other' / 'random.py'}" in said
    assert include != "broken" or "broken_by_me.py, line 3" in said


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("_target_: nope.Nope", "mine.yaml: _target_: nope.Nope: the module 'nope' does not exist"),
        ("_target_: 5", "mine.yaml: _target_: 5: '5' must be a module and a class"),
        ("eps: 1", "norm has no `option`, because the file of its option names no class"),
    ],
)
def test_the_error_for_an_option_without_a_class_names_its_file_or_key(
    text, told, tmp_path, capsys
):
    (tmp_path / "own" / "norm").mkdir(parents=True)
    (tmp_path / "own" / "norm" / "mine.yaml").write_text(f"{text}\n")
    words = ["norm=mine", f"include={tmp_path / 'own'}", f"runs_dir={tmp_path / 'runs'}"]
    assert main(["train", "task=wine", "model=mlp", "schedule=constant", *words]) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert told in said


def test_a_settings_file_cannot_set_include(tmp_path, capsys):
    (tmp_path / "my.yaml").write_text(f"seed: 1\ninclude: {tmp_path}\n")
    assert main(["train", str(tmp_path / "my.yaml")]) == 1
    assert "a file cannot choose code to run" in capsys.readouterr().err


def test_commands_and_their_processes_import_nothing_from_the_current_folder(tmp_path, monkeypatch):
    for name in ("json", "queue", "tokenizers", "torch"):
        (tmp_path / f"{name}.py").write_text(f"open('{tmp_path}/imported', 'a').write('{name} ')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    typed = [sys.executable, "-m", "normlab", "list", "keys"]
    for command in (typed, [*program(), "list", "keys"]):
        assert subprocess.run(command, stdout=subprocess.DEVNULL).returncode == 0
    assert main(["list", "keys"]) == 0
    # Processes that a launcher or a library starts cannot be prepared by the test.
    subprocess.run([sys.executable, "-c", "import queue"], check=True)
    assert not (tmp_path / "imported").exists()
