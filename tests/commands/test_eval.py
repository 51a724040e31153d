"""`normlab eval` re-scores a finished run, with the same or different settings."""

import json
import shutil
from pathlib import Path

import pytest

from normlab.cli import main
from normlab.norms.running import running_norms
from normlab.records.store import read_record
from normlab.training.loaded_run import load_run

ROUNDING = 1e-4  # relative change of a score that folding may cause


@pytest.fixture
def evaluated(capsys):
    """Return a function that evaluates a run and returns its scores."""

    def scores(folder: Path, *arguments: str) -> dict:
        capsys.readouterr()
        assert main(["eval", str(folder), *arguments, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return scores


@pytest.fixture
def copied(finished: Path, tmp_path: Path):
    """Return a function that copies the finished run as another seed and changes its record."""

    def copy(seed: int = 1, **changes: object) -> Path:
        folder = shutil.copytree(finished, tmp_path / finished.parent.name / f"seed{seed}")
        record = json.loads((folder / "record.json").read_text())
        record["config"]["seed"] = seed
        (folder / "record.json").write_text(json.dumps({**record, "seed": seed, **changes}))
        return folder

    return copy


def known(finished: Path, prefix: str = "test/") -> dict:
    """Return the scores of the tested weights in the record."""
    scores = read_record(finished).scores
    return {name: s for name, s in scores.items() if name.startswith(prefix)}


def test_eval_reproduces_the_recorded_scores_of_each_kind_of_weights(
    finished: Path, evaluated, capsys
):
    scores = known(finished)
    found = evaluated(finished)
    assert set(found) == {name for name in scores if name.count("/") == 1}
    for name, score in found.items():
        assert score["value"] == scores[name].value
        assert score["signature"] == scores[name].signature
    for name, score in evaluated(finished, "--weights", "best_loss").items():
        assert score["value"] == scores[name.replace("test/", "test/best_loss/")].value
    assert main(["eval", str(finished), "--weights", "bset"]) == 1
    assert "best_loss" in capsys.readouterr().err


@pytest.mark.parametrize("weights", ["last", "best", "best_loss"])
def test_each_score_stands_beside_that_of_the_same_weights_in_the_record(finished, capsys, weights):
    assert main(["eval", str(finished), "--weights", weights]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    found = {row[0]: row[1:] for row in rows if row and row[0].startswith("test/")}
    assert "test/bleu" in found and all(score == known for score, known in found.values())


def test_changed_settings_change_the_scores(finished: Path, evaluated):
    plain = known(finished)["test/loss"].value
    found = evaluated(finished, "norm.eval_stats=batch", "observe.test_noise=[3]")
    assert abs(found["test/loss"]["value"] - plain) > 1e-3
    assert {name for name in found if "noise" not in name} == {
        name.replace("noise_3/", "") for name in found if "noise" in name
    }
    assert found["test/noise_3/loss"]["value"] > found["test/loss"]["value"]


def test_a_folded_run_scores_the_same(finished: Path, evaluated):
    plain, folded = known(finished), evaluated(finished, "--fold")
    assert {name: score["value"] for name, score in folded.items()} == pytest.approx(
        {name: plain[name].value for name in folded}, rel=ROUNDING
    )
    assert len(running_norms(load_run(finished, fold=True).model)) == 1  # before the output


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--fold", "norm.eval_stats=recalibrated"], ["recalibrates them", "eval_stats=running"]),
        (["norm.stats=batch"], ["norm.stats=batch"]),
        (["norm=bn"], ["norm=bn", "norm cannot be replaced", "norm.KEY=value"]),
        (["--split", "dev"], ["dev", "test", "valid"]),
        (["--limit", "-3"], ["--limit=-3 must be at least 1"]),
        (["--limit", "3", "--outputs", "x"], ["--outputs needs the whole split"]),
        (["--outputs", "nowhere/x"], ["--outputs nowhere/x must be a file in a folder"]),
        (["runs_dir=elsewhere"], ["runs_dir has no effect on a trained run; omit it"]),
        (["optim.lr=5"], ["optim.lr has no effect"]),
        (["budget.steps=5"], ["budget.steps has no effect"]),
        (["seed=3"], ["seed has no effect"]),
        (["batch_size=4"], ["batch_size has no effect"]),
        (["task.batch_size=4"], ["task.batch_size has no effect"]),
        (["--kept", "norm.eps=1"], ["norm.eps has no effect"]),
    ],
)
def test_invalid_arguments_of_eval_are_a_one_line_error(arguments, parts, finished: Path, capsys):
    assert main(["eval", str(finished), *arguments]) == 1
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert all(part in captured.err for part in parts), captured.err


def test_outputs_are_written_and_the_run_stays_unchanged(finished: Path, tmp_path: Path, capsys):
    def files():
        return {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}

    before, outputs = files(), tmp_path / "out.en"
    assert main(["eval", str(finished), "--outputs", str(outputs), "--notes"]) == 0
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["score", "seed1", "record"]
    assert all(row.split()[1] == row.split()[2] for row in rows if row.startswith("test/"))
    assert any(row.startswith("scored by: test/bleu, ") for row in rows)
    assert outputs.read_bytes() == before[finished / "hypotheses.txt"] and files() == before


def test_an_interrupted_run_gets_a_warning_and_missing_weights_an_error(copied, capsys):
    folder = copied(outcome={"status": "interrupted", "step": 3})
    assert main(["eval", str(folder), "--limit", "1"]) == 0
    out, said = capsys.readouterr()
    assert "interrupted at step 3, so these are not the weights of a finished run" in said
    assert "for at most 1 examples; the record's are for the whole split" in " ".join(out.split())
    (folder / "checkpoints" / "best-loss.pt").unlink()
    unkept = ["eval", str(folder), "--weights", "best_loss", "validate.best=false"]
    assert main(unkept) == 1
    assert "best-loss.pt was not kept, because the run was trained with validate.best=false" in (
        capsys.readouterr().err
    )


def test_kept_translations_must_reproduce_the_recorded_scores(
    finished: Path, tmp_path: Path, capsys
):
    for name in ("record.json", "hypotheses.txt"):
        shutil.copy(finished / name, tmp_path)
    assert main(["eval", str(tmp_path), "--kept"]) == 0
    out = capsys.readouterr().out
    assert all(f"test/{name} " in out for name in ("bleu", "chrf", "brevity_penalty"))
    (tmp_path / "hypotheses.txt").write_text("the man sees the dog.\n" * 6)
    assert main(["eval", str(tmp_path), "--kept"]) == 1
    assert "test/chrf differs between the record" in capsys.readouterr().err
    (tmp_path / "hypotheses.txt").write_text("")
    assert main(["eval", str(tmp_path), "--kept"]) == 1
    assert f"{tmp_path / 'hypotheses.txt'}: 0 hypotheses for 6" in capsys.readouterr().err


@pytest.mark.parametrize(
    "flags", [["--fold"], ["--limit", "2"], ["--split", "valid"], ["--weights", "last"]]
)
def test_flags_that_do_not_apply_to_kept_translations_are_refused(finished, capsys, flags):
    assert main(["eval", str(finished), "--kept", *flags]) == 1
    assert f"omit {flags[0]}" in capsys.readouterr().err


def test_an_experiment_is_scored_per_seed_with_a_mean(finished, copied, tmp_path, capsys):
    experiment = copied(1).parent
    copied(2)
    assert main(["eval", str(experiment)]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["score", "seed1", "seed2", "mean"]
    loss = f"{known(finished)['test/loss'].value:.4g}"
    assert next(row for row in rows if row[0] == "test/loss")[1:] == [loss] * 3
    assert main(["eval", str(experiment), "--outputs", str(tmp_path / "out")]) == 1
    assert "--outputs works with one run" in capsys.readouterr().err


def test_a_path_that_is_not_a_finished_run_is_refused(copied, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    running = copied()
    (running / "record.json").unlink()
    Path("results/batching/small").mkdir(parents=True)
    for place, said in [
        (running, "not ended"),
        (tmp_path / "none", "none does not exist"),
        ("results/batchin/smal:bn", "Did you mean results/batching/small:bn?"),
    ]:
        assert main(["eval", str(place)]) == 1
        assert said in capsys.readouterr().err


def test_the_batch_size_acts_if_statistics_are_recalibrated(recalibrating: Path, evaluated):
    with_two, recorded = evaluated(recalibrating, "batch_size=2"), known(recalibrating)
    assert with_two["test/loss"]["value"] != recorded["test/loss"].value


def test_a_note_says_which_scores_a_limit_shortens(copied, capsys):
    folder = copied()
    record = json.loads((folder / "record.json").read_text())
    record["config"]["validate"]["limit"] = 2
    (folder / "record.json").write_text(json.dumps(record))

    def printed(*arguments: str) -> str:
        assert main(["eval", str(folder), *arguments]) == 0
        return " ".join(capsys.readouterr().out.split())

    assert "these scores are" not in printed()
    assert "for at most 1 examples; the record's are for at most 2" in printed("--limit", "1")
    outputs = str(folder.parent / "out.en")
    assert "for the whole split; the record's are for at most 2" in printed("--outputs", outputs)


def test_outputs_of_a_task_without_text_are_refused(tmp_path, capsys):
    settings = ["task=wine", "model=mlp", "schedule=constant", "steps=2", f"runs_dir={tmp_path}"]
    assert main(["train", *settings, "device=cpu"]) == 0
    (run,) = tmp_path.rglob("seed1")
    assert main(["eval", str(run), "--outputs", str(tmp_path / "x")]) == 1
    assert "task=wine generates no translations to write to" in capsys.readouterr().err
