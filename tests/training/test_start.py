"""`start_from`: a run starts from the weights of another run where names and shapes match."""

import shutil
from pathlib import Path

import pytest
import torch

from normlab.config.compose import compose
from normlab.config.run_config import to_dict
from normlab.records.record import fingerprint
from normlab.training import train
from normlab.training.loaded_run import load_run
from tests.tiny_runs import tiny

SHORT = ("budget.steps=2", "validate.every=2", "validate.best=false", "task.test_search.beam=1")


def composed(corpus: Path, runs: Path, *overrides: str):
    return compose(tiny(corpus, runs, *SHORT, *overrides))


@pytest.fixture(scope="module")
def first(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a short run with layer norm."""
    runs = tmp_path_factory.mktemp("first")
    train(composed(corpus, runs, "norm=ln"))
    return next(runs.rglob("record.json")).parent


def test_a_batch_norm_model_starts_from_all_parameters_of_a_layer_norm_model(
    first: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    frozen = [f"+optim.groups.{kind}.rate=0" for kind in ("norm", "bias", "embedding", "other")]
    config = composed(corpus, tmp_path, "norm=bn", f"start_from={first}", "sink=[console]", *frozen)
    record = train(config)
    said = capsys.readouterr().err
    assert "tensors are copied" in said and "initialized" in said
    before, after = (load_run(place).model for place in (first, next(tmp_path.rglob("seed1"))))
    learned = dict(after.named_parameters())
    for name, value in before.named_parameters():
        assert torch.equal(learned[name], value), name
    assert record.config["start_from"]["sha256"] == config.start_from["sha256"]


def test_the_fingerprint_depends_on_the_weights_and_not_on_their_folder(
    first: Path, corpus: Path, tmp_path: Path
):
    without = to_dict(composed(corpus, tmp_path))
    moved = tmp_path / "moved"
    shutil.copytree(first, moved)
    named = [to_dict(composed(corpus, tmp_path, f"start_from={place}")) for place in (first, moved)]
    assert fingerprint(named[0]) == fingerprint(named[1]) != fingerprint(without)


def test_start_from_may_be_relative_to_runs_dir(first: Path, corpus: Path, tmp_path: Path):
    for seed in (1, 2):
        shutil.copytree(first, tmp_path / "base" / "some-ln" / f"seed{seed}")
    config = composed(corpus, tmp_path, "start_from=base/some-ln/seed2")
    assert config.start_from["run_dir"] == str(tmp_path / "base/some-ln/seed2")
    with pytest.raises(
        ValueError, match=r"start_from=base has 2 runs; choose one, such as .*seed1$"
    ):
        composed(corpus, tmp_path, "start_from=base")
    with pytest.raises(ValueError, match=r"Did you mean base or base/some-ln\?"):
        composed(corpus, tmp_path, "start_from=bass")


def test_an_unusable_start_from_raises_an_error(first: Path, corpus: Path, tmp_path: Path):
    with pytest.raises(ValueError, match=r"start_from=.*nowhere is not a trained run"):
        composed(corpus, tmp_path, f"start_from={tmp_path / 'nowhere'}")
    moved = tmp_path / "moved"
    shutil.copytree(first, moved)
    config = composed(corpus, tmp_path / "runs", f"start_from={moved}")
    config.start_from.sha256 = "0" * 64
    with pytest.raises(ValueError, match=r"last\.pt has changed"):
        train(config)
    (moved / "checkpoints" / "last.pt").write_bytes(b"no archive")
    config = composed(corpus, tmp_path / "runs", f"start_from={moved}")
    with pytest.raises(ValueError, match=r"last\.pt is a damaged checkpoint"):
        train(config)
