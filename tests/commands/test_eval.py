"""`normlab eval`: the scores of a finished run, again or under other settings."""

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from normlab.cli import main
from normlab.norms.base import running_norms
from normlab.records.store import RunStore
from normlab.train.loaded import load_run
from tests.tiny_runs import LOOP, Kill, run, tiny, write_corpus

MOVED = ("norm=bn", "norm.momentum=0.01")  # statistics that are far from those of a batch
AVERAGED = ("validate.average=2", "validate.average_statistics=recalibrate")
ROUNDING = 1e-4  # what folding may change of a score, of its size


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that trains a tiny run of translation and returns its folder."""
    corpus = write_corpus(tmp_path_factory.mktemp("corpus") / "text")

    @cache
    def train(*overrides: str) -> Path:
        folder = tmp_path_factory.mktemp("run")
        return carried_out(tiny(corpus, folder, *overrides), folder)

    return train


def carried_out(overrides: list[str], runs: Path) -> Path:
    ended = run(["train", *overrides], runs / "log")
    assert ended.status == 0, ended.output
    (record,) = runs.rglob("record.json")
    return record.parent


@pytest.fixture
def finished(trained: Callable[..., Path]) -> Path:
    """Return the folder of a run of batch norm."""
    return trained(*MOVED)


@pytest.fixture(scope="module")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run of a language model with batch norm."""
    text = write_corpus(tmp_path_factory.mktemp("documents") / "text")
    for path in text.glob("*.en"):
        path.rename(path.with_suffix(".txt"))
    runs = tmp_path_factory.mktemp("run")
    task = ("task=lm", "task/corpus=documents", "task.vocab_size=300", "task.max_length=32")
    model = ("model.dim=16", "model.ffn_dim=32", "model.num_heads=2", "model.num_layers=1")
    places = (f"data_dir={text}", f"runs_dir={runs}")
    quiet = "~task.targets.perplexity"  # whose whole numbers the checks of types refuse
    return carried_out([*task, *model, *MOVED, *LOOP, *places, quiet], runs)


def evaluated(folder: Path, *arguments: str, capsys) -> dict:
    capsys.readouterr()
    assert main(["eval", str(folder), *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_scores_are_those_of_the_record(finished: Path, capsys):
    record = RunStore(finished).read(finished)
    found = evaluated(finished, capsys=capsys)
    assert set(found) == {name for name in record.main_scores if name.startswith("test/")}
    for name, score in found.items():
        assert score["value"] == record.scores[name].value
        assert score["signature"] == record.scores[name].signature


@pytest.mark.parametrize("mode", ["batch", "recalibrated"])
def test_another_mode_of_statistics_scores_differently(mode: str, finished: Path, capsys):
    running = evaluated(finished, capsys=capsys)
    other = evaluated(finished, f"norm.eval_stats={mode}", capsys=capsys)
    assert abs(other["test/loss"]["value"] - running["test/loss"]["value"]) > 1e-3


def test_noise_is_asked_for_afterwards_too_of_a_run_that_knows_of_none(finished, tmp_path, capsys):
    before = shutil.copytree(finished, tmp_path / finished.parent.name / finished.name)
    record = json.loads((before / "record.json").read_text())
    for key in ("test_noise", "test_seen"):
        del record["config"]["observe"][key]
    (before / "record.json").write_text(json.dumps(record))
    plain = evaluated(finished, capsys=capsys)
    found = evaluated(before, "observe.test_noise=[3]", capsys=capsys)
    assert set(found) == {*plain, *(name.replace("test/", "test/noise_3/") for name in plain)}
    assert found["test/loss"] == plain["test/loss"]
    assert found["test/noise_3/loss"]["value"] > plain["test/loss"]["value"]


def test_folded_a_run_scores_the_same(finished: Path, capsys):
    plain, folded = (evaluated(finished, *fold, capsys=capsys) for fold in ([], ["fold=true"]))
    assert {name: score["value"] for name, score in folded.items()} == pytest.approx(
        {name: score["value"] for name, score in plain.items()}, rel=ROUNDING
    )
    assert len(running_norms(load_run(finished, fold=True).model)) == 1  # before the output


def test_a_folded_language_model_scores_the_same_token_by_token_too(language_model: Path, capsys):
    plain = evaluated(language_model, capsys=capsys)
    folded = evaluated(language_model, "fold=true", capsys=capsys)
    assert {"test/loss", "test/one_by_one/loss"} < set(folded)
    assert {name: score["value"] for name, score in folded.items()} == pytest.approx(
        {name: score["value"] for name, score in plain.items()}, rel=ROUNDING
    )


@pytest.mark.parametrize(
    ("overrides", "changes", "parts"),
    [
        (MOVED, ["fold=maybe"], ["fold=maybe", "true", "false"]),
        (
            MOVED,
            ["fold=true", "norm.eval_stats=recalibrated"],
            ["recalibrates them", "norm.eval_stats=running"],
        ),
        (
            (*MOVED, *AVERAGED),
            ["fold=true"],
            ["validate.average_statistics=average", "validate.average=0"],
        ),
        (
            ("norm=ln", *AVERAGED),
            ["fold=true"],
            ["no norm to fold", "norm=bn", "placement=pre"],
        ),
    ],
)
def test_what_cannot_be_folded_is_one_clear_line(overrides, changes, parts, trained, capsys):
    assert main(["eval", str(trained(*overrides)), *changes]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert all(part in captured.err for part in parts), captured.err


def test_outputs_are_written_and_the_run_is_left_as_it_is(finished: Path, tmp_path: Path, capsys):
    """Without --json the record is shown next to each score."""

    def files():
        found = (path for path in finished.rglob("*") if path.is_file())
        return {path: path.read_bytes() for path in found if path.name != "eval.jsonl"}

    before, outputs = files(), tmp_path / "out.en"
    assert main(["eval", str(finished), "--outputs", str(outputs), "fold=false"]) == 0
    captured = capsys.readouterr()
    assert "test/bleu" in captured.out and "record: " in captured.out
    assert "fold=false" in captured.err
    assert outputs.read_bytes() == before[finished / "hypotheses.txt"]
    assert files() == before


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["norm.stats=batch"], ["norm.stats=batch"]),
        (["norm=bn"], ["norm=bn", "norm cannot be changed whole", "norm.KEY=value"]),
        (["--split", "dev"], ["dev", "test", "valid"]),
    ],
)
def test_what_does_not_fit_is_one_clear_line(
    arguments: list[str], parts: list[str], finished: Path, capsys
):
    assert main(["eval", str(finished), *arguments]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert all(part in error for part in parts), error


def test_a_run_that_was_stopped_before_it_validated_has_its_last_weights_and_no_best(
    tmp_path: Path, capsys
):
    import signal

    corpus = write_corpus(tmp_path / "text")
    stop = Kill("normlab.train.loop.Trainer.step", 2, "before", signal.SIGTERM)
    ended = run(["train", *tiny(corpus, tmp_path / "runs")], tmp_path / "log", stop.install)
    assert ended.status == 130, ended.output
    (record,) = (tmp_path / "runs").rglob("record.json")
    assert main(["eval", str(record.parent), "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["test/bleu"]["n"] == 6
    assert "interrupted at step 3: these are not the weights of a whole run" in said.err
    assert main(["eval", str(record.parent), "--weights", "best_loss"]) == 1
    assert "best-loss.pt" in capsys.readouterr().err


def test_other_weights_have_the_scores_that_the_record_gives_them(finished: Path, capsys):
    record = RunStore(finished).read(finished)
    for path, score in evaluated(finished, "--weights", "best_loss", capsys=capsys).items():
        kept = record.scores[path.replace("test/", "test/best_loss/")]
        assert score["value"] == kept.value, path
    assert main(["eval", str(finished), "--weights", "bset"]) == 1
    assert "best_loss" in capsys.readouterr().err


def test_kept_translations_have_the_score_of_the_record_unless_one_was_changed(
    finished: Path, tmp_path: Path, capsys
):
    folder = tmp_path / "copy"
    folder.mkdir()
    for name in ("record.json", "hypotheses.txt"):
        (folder / name).write_bytes((finished / name).read_bytes())
    assert main(["eval", str(folder), "--kept"]) == 0
    out = capsys.readouterr().out
    assert all(f"test/{name} " in out for name in ("bleu", "chrf", "brevity_penalty"))
    (folder / "hypotheses.txt").write_text("the man sees the dog.\n" * 6)
    assert main(["eval", str(folder), "--kept"]) == 1
    assert "test/chrf of the kept translations" in capsys.readouterr().err


def test_an_experiment_is_scored_by_seed_and_each_result_is_kept_once(finished, tmp_path, capsys):
    experiment = tmp_path / finished.parent.name
    for seed in (1, 2):
        folder = shutil.copytree(
            finished, experiment / f"seed{seed}", ignore=shutil.ignore_patterns("eval.jsonl")
        )
        record = json.loads((folder / "record.json").read_text())
        record["seed"] = record["config"]["seed"] = seed
        (folder / "record.json").write_text(json.dumps(record))
    for _ in range(2):
        assert main(["eval", str(experiment)]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["score", "seed1", "seed2", "mean"]
    known = RunStore(finished).read(finished).scores["test/loss"].value
    assert next(row for row in rows if row[0] == "test/loss")[1:] == [f"{known:.4g}"] * 3
    (line,) = (experiment / "seed2" / "eval.jsonl").read_text().splitlines()
    kept = json.loads(line)
    assert kept["scores"]["test/loss"]["value"] == known
    assert (kept["split"], kept["changes"], kept["limit"]) == ("test", [], None)
    assert main(["eval", str(experiment), "--outputs", str(tmp_path / "out")]) == 1
    assert "--outputs takes one run" in capsys.readouterr().err


def test_a_limit_scores_some_examples(finished, capsys):
    some = evaluated(finished, "--limit", "3", capsys=capsys)
    assert some["test/bleu"]["n"] == 3
    assert main(["eval", str(finished), "--limit", "0"]) == 1
    assert "--limit 0: at least 1" in capsys.readouterr().err


def test_a_place_that_is_no_finished_run_says_what_it_is(finished, tmp_path, capsys):
    running = shutil.copytree(finished, tmp_path / "a" / "seed1")
    (running / "record.json").unlink()
    for place, told in [(running, "not ended"), (tmp_path / "none", "no run below")]:
        assert main(["eval", str(place)]) == 1
        assert told in capsys.readouterr().err
