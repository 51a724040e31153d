"""A record lists all code versions that trained the run and is dirty if any of them was."""

import subprocess
from pathlib import Path

import pytest

from normlab.claims.sample import why_not_evidence
from normlab.config.compose import compose
from normlab.errors import UserError
from normlab.records import code
from normlab.records.code import Code, checkout_state, joint_code, module_file, uncommitted_files
from normlab.training import run_folder as run_module
from normlab.training import runtime, train
from normlab.training.trainer import Trainer
from tests.tiny_runs import QUICK, tiny

SHORT = (*QUICK, "budget.steps=4", "validate.every=4", "observe.checkpoint_every=2")
DIRTY, CLEAN = ("aaaa", True), ("bbbb", False)


@pytest.fixture
def trained(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that trains a short run with a checkout's code in a given state."""

    def train_with(state, *overrides, stops=False, numerics=1):
        with monkeypatch.context() as patch:
            patch.setattr(runtime, "checkout_state", lambda: state)
            patch.setattr(run_module, "NUMERICS", numerics)
            if stops:
                patch.setattr(Trainer, "save", save_and_stop)
            return train(compose(tiny(corpus, tmp_path / "runs", *SHORT, *overrides)))

    return train_with


_save = Trainer.save


def save_and_stop(self):
    _save(self)
    raise KeyboardInterrupt


def test_a_run_started_with_uncommitted_code_is_not_evidence_even_if_resumed_clean(
    trained,
):
    with pytest.raises(KeyboardInterrupt):
        trained(DIRTY, stops=True)
    record = trained(CLEAN)
    assert record.finished and record.outcome.step == 4
    assert record.environment["dirty"] is True
    assert record.commits == ["aaaa", "bbbb"] and record.environment["commit"] == "bbbb"
    assert why_not_evidence(record, ["test/bleu"]) == "made by uncommitted code"


def test_a_run_that_starts_from_weights_of_uncommitted_code_is_dirty(trained, tmp_path):
    trained(DIRTY)
    (folder,) = (path.parent for path in (tmp_path / "runs").rglob("record.json"))
    record = trained(CLEAN, f"start_from={folder}", "norm=bn")
    assert record.environment["dirty"] is True and record.commits == ["aaaa", "bbbb"]
    with pytest.raises(ValueError, match=r"seed1, which this run starts from, .*numerics 1; now n"):
        trained(CLEAN, f"start_from={folder}", "norm=rms", numerics=2)


def test_a_finished_run_is_not_reused_after_its_norms_formula_was_edited(trained, monkeypatch):
    trained(CLEAN, "norm=bn")
    monkeypatch.setattr(code, "uncommitted_files", lambda: {module_file("normlab.norms.batch")})
    with pytest.raises(UserError, match=r"now numerics 1, bn: batch.py \w+\): .*=rerun"):
        trained(DIRTY, "norm=bn")
    record = trained(DIRTY, "norm=bn", "observe.other_code=rerun")
    assert record.own_norms["bn"].startswith("batch.py ") and record.environment["dirty"] is True
    assert (
        trained(DIRTY, "norm=bn").own_norms == record.own_norms
    )  # the same edit: not trained again
    monkeypatch.undo()
    with pytest.raises(
        UserError, match=r"numerics 1, bn: batch.py \w+, commit aaaa; now numerics 1\)"
    ):
        trained(CLEAN, "norm=bn")


def test_a_run_resumed_under_other_numerics_records_both(trained):
    with pytest.raises(KeyboardInterrupt):
        trained(CLEAN, stops=True)
    record = trained(CLEAN, "observe.other_code=accept", numerics=2)
    assert record.numerics == "1, then 2" and record.commits == ["bbbb"]


def test_a_clean_run_that_was_stopped_stays_clean(trained):
    with pytest.raises(KeyboardInterrupt):
        trained(CLEAN, stops=True)
    record = trained(CLEAN)
    assert record.environment["dirty"] is False and "commits" not in record.environment


def test_every_version_of_an_own_norm_that_trained_a_run_is_recorded():
    codes = [Code(1, {"mine": text}, "c", False) for text in ("mine.py 1", "mine.py 2")]
    assert joint_code(codes) == (1, {"mine": "mine.py 1, then mine.py 2"})


def test_an_untracked_code_or_config_file_makes_a_checkout_dirty(tmp_path, monkeypatch):
    monkeypatch.setattr(code, "CHECKOUT", tmp_path)
    assert checkout_state() == (None, None)
    for name in ("normlab/a.py", "configs/norm/a.yaml", "docs/a.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")

    def git(*words):
        own = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", str(tmp_path), *own, *words], check=True, capture_output=True)

    git("init")
    git("add", ".")
    git("commit", "-m", "begin")
    assert checkout_state()[1] is False
    (tmp_path / "docs" / "b.md").write_text("")
    assert checkout_state()[1] is False, "a page does not change results"
    (tmp_path / "configs" / "norm" / "peak.yaml").write_text("")
    assert checkout_state()[1] is True
    (tmp_path / "normlab" / "ü b.py").write_text("")
    assert uncommitted_files() == {
        tmp_path.joinpath(name) for name in ("configs/norm/peak.yaml", "normlab/ü b.py")
    }
