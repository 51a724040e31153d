"""An exported model computes what the run's does, with norms folded and as a program."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from normlab.build import make_norm
from normlab.commands.export import main
from normlab.config import compose
from normlab.export import load_export, outputs
from normlab.loaded import load_run
from normlab.registry import option_names
from normlab.run import train
from tests.tiny_runs import tiny, write_corpus

# where products or a feed-forward layer take a norm up, in pre-norm, and what does all of that
PLACES = [
    *(f"encoder.{layer}.{part}" for layer in (0, 1) for part in ("self", "ffn", "ffn.inner")),
    *(f"decoder.0.{part}" for part in ("self", "cross", "ffn", "ffn.inner")),
    "encoder.final",
]
FIXED = [name for name in option_names("norm") if make_norm(name, 8).eval().fixed_map() is not None]
NORMS = [*FIXED, "{norm:pn,groups:null}", "{norm:pn_v,groups:null}"]
assert {"bn", "mabn", "un", "prepbn", "repbn"} < set(FIXED) and len(NORMS) <= len(PLACES)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    corpus = write_corpus(folder / "text")
    steps = ("budget.steps=3", "validate.every=3", "task.test_search.beam=1")
    rules = ",".join(f"{place}:{norm}" for place, norm in zip(PLACES, NORMS, strict=False))
    norms = ("norm=bn", "norm@ffn_inner_norm=bn", "model.encoder_layers=2", f"sites={{{rules}}}")
    train(compose(tiny(corpus, folder / "runs", *norms, *steps)))
    return next(folder.rglob("record.json")).parent


def test_norms_are_folded_and_the_program_takes_other_sizes(run, tmp_path):
    # In a process of its own: shapes that are checked at run time cannot be traced.
    command = [sys.executable, "-m", "normlab", "export", str(run), "--fold", "--out", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert f"{len(PLACES)} norms folded, outputs agree to" in done.stdout, done.stderr
    assert "no program" not in done.stdout
    loaded = load_run(run)
    model = load_export(tmp_path / "model.pt", loaded.task)
    batch = loaded.task.batch("valid", [0, 2, 3])
    expected = outputs(loaded.task, loaded.model, batch)
    torch.testing.assert_close(outputs(loaded.task, model, batch), expected, rtol=1e-4, atol=1e-5)
    program = torch.export.load(tmp_path / "model.pt2").module()
    given = (batch.source, batch.source_valid, batch.tgt_in, batch.tgt_valid)
    found = program(*given)[batch.tgt_valid]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_pictures_have_a_program_that_takes_bytes(tmp_path):
    sizes = ("task=digits", "model.width=4", "norm=bn", "batch_size=20", "schedule.warmup=1")
    steps = ("budget.steps=3", "validate.every=3", "sink=[]", "observe.threads=1", "device=cpu")
    train(compose([*sizes, *steps, f"runs_dir={tmp_path / 'runs'}"]))
    folder = next((tmp_path / "runs").rglob("record.json")).parent
    command = [sys.executable, "-m", "normlab", "export", str(folder), "--fold"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "7 norms folded, outputs agree to" in done.stdout, done.stderr
    assert "no program" not in done.stdout
    loaded = load_run(folder)
    batch = loaded.task.batch("test", [0, 2, 3])
    found = torch.export.load(folder / "export" / "model.pt2").module()(batch.pixels)
    with torch.no_grad():
        expected = loaded.task.logits(loaded.model, batch)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_a_run_of_a_gpu_is_exported_without_one_and_keeps_its_config(run, tmp_path):
    folder = tmp_path / "seed1"
    shutil.copytree(run, folder, ignore=shutil.ignore_patterns("export"))
    record = folder / "record.json"
    text = record.read_text()
    assert '"device": "cpu"' in text
    record.write_text(text.replace('"device": "cpu"', '"device": "cuda"'))
    assert main([str(folder), "device=cpu"]) == 0
    content = torch.load(folder / "export" / "model.pt", weights_only=True)
    assert content["config"]["device"] == "cuda"


def test_a_file_that_is_no_export_is_named(run, tmp_path):
    task = load_run(run).task
    with pytest.raises(ValueError, match=r"last\.pt: damaged checkpoint, or one of another model"):
        load_export(run / "checkpoints" / "last.pt", task)
    with pytest.raises(ValueError, match="no such record"):
        main([str(tmp_path), "device=cpu"])
    with pytest.raises(ValueError, match="precision=fp32: one run at a time, and device= alone"):
        main([str(run), "precision=fp32"])
