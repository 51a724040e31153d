"""`normlab eval`: the scores of a finished run, again or under other settings."""

import json
import shutil
import signal
from pathlib import Path

import pytest

from normlab.cli import main
from normlab.norms.base import running_norms
from normlab.records.store import RunStore
from normlab.train.loaded import load_run
from tests.tiny_runs import Kill, run, tiny, write_corpus

ROUNDING = 1e-4  # what folding may change of a score, relative to it


@pytest.fixture
def evaluated(capsys):
    """Return a function that returns the scores of a run under some arguments."""

    def scores(folder: Path, *arguments: str) -> dict:
        capsys.readouterr()
        assert main(["eval", str(folder), *arguments, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return scores


def test_the_scores_of_each_weights_are_those_of_the_record(finished: Path, evaluated, capsys):
    record = RunStore(finished).read(finished)
    found = evaluated(finished)
    assert set(found) == {name for name in record.main_scores if name.startswith("test/")}
    for name, score in found.items():
        assert score["value"] == record.scores[name].value
        assert score["signature"] == record.scores[name].signature
    for name, score in evaluated(finished, "--weights", "best_loss").items():
        assert score["value"] == record.scores[name.replace("test/", "test/best_loss/")].value
    assert main(["eval", str(finished), "--weights", "bset"]) == 1
    assert "best_loss" in capsys.readouterr().err


def test_other_settings_change_the_scores(finished: Path, evaluated):
    plain = evaluated(finished)
    batch = evaluated(finished, "norm.eval_stats=batch")
    assert abs(batch["test/loss"]["value"] - plain["test/loss"]["value"]) > 1e-3
    noisy = evaluated(finished, "observe.test_noise=[3]")
    assert set(noisy) == {*plain, *(name.replace("test/", "test/noise_3/") for name in plain)}
    assert noisy["test/loss"] == plain["test/loss"]
    assert noisy["test/noise_3/loss"]["value"] > plain["test/loss"]["value"]
    assert evaluated(finished, "--limit", "3")["test/bleu"]["n"] == 3


def test_a_folded_run_scores_the_same(finished: Path, evaluated):
    plain, folded = evaluated(finished), evaluated(finished, "--fold")
    assert {name: score["value"] for name, score in folded.items()} == pytest.approx(
        {name: score["value"] for name, score in plain.items()}, rel=ROUNDING
    )
    assert len(running_norms(load_run(finished, fold=True).model)) == 1  # before the output


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--fold", "norm.eval_stats=recalibrated"], ["recalibrates them", "eval_stats=running"]),
        (["norm.stats=batch"], ["norm.stats=batch"]),
        (["norm=bn"], ["norm=bn", "norm cannot be replaced", "norm.KEY=value"]),
        (["--split", "dev"], ["dev", "test", "valid"]),
        (["--limit", "0"], ["--limit 0: at least 1"]),
    ],
)
def test_what_does_not_fit_is_one_clear_line(arguments, parts, finished: Path, capsys):
    assert main(["eval", str(finished), *arguments]) == 1
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert all(part in captured.err for part in parts), captured.err


def test_outputs_are_written_and_the_run_is_left_as_it_is(finished: Path, tmp_path: Path, capsys):
    def files():
        found = (path for path in finished.rglob("*") if path.is_file())
        return {path: path.read_bytes() for path in found if path.name != "eval.jsonl"}

    before, outputs = files(), tmp_path / "out.en"
    assert main(["eval", str(finished), "--outputs", str(outputs)]) == 0
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["score", "seed1", "record"]
    assert all(row.split()[1] == row.split()[2] for row in rows if row.startswith("test/"))
    assert outputs.read_bytes() == before[finished / "hypotheses.txt"] and files() == before


def test_a_stopped_run_has_its_last_weights_and_a_warning(tmp_path: Path, capsys):
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


def test_kept_translations_have_the_score_of_the_record(finished: Path, tmp_path: Path, capsys):
    for name in ("record.json", "hypotheses.txt"):
        shutil.copy(finished / name, tmp_path)
    assert main(["eval", str(tmp_path), "--kept"]) == 0
    out = capsys.readouterr().out
    assert all(f"test/{name} " in out for name in ("bleu", "chrf", "brevity_penalty"))
    (tmp_path / "hypotheses.txt").write_text("the man sees the dog.\n" * 6)
    assert main(["eval", str(tmp_path), "--kept"]) == 1
    assert "test/chrf of the kept translations" in capsys.readouterr().err


def test_an_experiment_is_scored_per_seed_and_each_result_is_kept_once(finished, tmp_path, capsys):
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


def test_a_place_that_is_no_finished_run_is_refused(finished, tmp_path, capsys):
    running = shutil.copytree(finished, tmp_path / "a" / "seed1")
    (running / "record.json").unlink()
    for place, said in [(running, "not ended"), (tmp_path / "none", "no run below")]:
        assert main(["eval", str(place)]) == 1
        assert said in capsys.readouterr().err
