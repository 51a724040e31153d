"""`normlab train`: error messages for bad input, sweeps, and the last line of output."""

import shutil
import sys
from pathlib import Path

import pytest

from normlab.cli import main
from normlab.studies.hydra_sweep import each_run_once
from normlab.studies.process_pool import RunToStart
from tests.commands.conftest import FINISHED as SAME
from tests.tiny_runs import QUICK, Ended, tiny


@pytest.fixture
def carry_out(capsys, monkeypatch):
    """Return a function that runs a command in this process."""

    def carried_out(*argv: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["normlab"])
        monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
        capsys.readouterr()
        try:
            status = main([*argv])
        except SystemExit as exit_:
            status = int(exit_.code or 0)
        captured = capsys.readouterr()
        return Ended(status, captured.out + captured.err)

    return carried_out


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    """Return the folder of a copy of the finished run, in `tmp_path/runs`."""
    folder = tmp_path / "runs" / finished.parent.name / finished.name
    return shutil.copytree(finished, folder)


def assert_clear(ended: Ended, *parts: str) -> None:
    """Assert that the command failed with a one-line message."""
    assert ended.status not in (0, None) and "Traceback" not in ended.output, ended.output
    (line,) = (line for line in ended.output.splitlines() if line.strip())
    assert line.startswith("normlab train: ") and all(part in line for part in parts), line


BAD = {
    "unknown option of a site": (["norm@decoder_norm=batch"], ["batch", "bn"]),
    "groups that do not divide": (["norm=gn", "norm.groups=7"], ["groups", "7", "16"]),
    "max_tokens below a sentence": (
        ["batch_size=null", "max_tokens=10"],
        ["max_tokens=10", "task.max_length"],
    ),
    "recalibration": (
        ["norm=bn", "norm.eval_stats=recalibrated", "validate.recalibration_batches=0"],
        ["validate.recalibration_batches=0"],
    ),
    "missing data_dir": (["data_dir=/no/such/place"], ["/no/such/place"]),
    "a GPU on a machine without one": (["device=cuda"], ["device=cuda", "device=cpu"]),
    "too few positions": (["model.max_positions=4"], ["max_positions"]),
}


@pytest.mark.parametrize("case", BAD)
def test_invalid_settings_are_a_one_line_error_and_leave_no_folder(
    case: str, corpus: Path, tmp_path: Path, carry_out
):
    if case == "a GPU on a machine without one" and __import__("torch").cuda.is_available():
        pytest.skip("there is a GPU here")
    overrides, parts = BAD[case]
    assert_clear(carry_out("train", *tiny(corpus, tmp_path / "runs", *overrides)), *parts)
    assert not (tmp_path / "runs").exists()


UNUSABLE = {
    "sides of different length": (lambda x: (x / "train.de").write_text("ein Satz\n"), "lines"),
    "a broken archive": (lambda x: (x / "train.de").rename(x / "train.de.gz"), "train.de.gz"),
    "a missing file": (lambda x: (x / "valid.en").unlink(), "valid.en"),
    "an empty file": (lambda x: (x / "test.de").write_text(""), "test.de"),
    "no text": (lambda x: [x.unlink() for x in x.iterdir()], "train.de"),
}


@pytest.mark.parametrize("fault", UNUSABLE)
def test_an_unusable_corpus_is_a_one_line_error_and_leaves_no_folder(
    fault: str, corpus, tmp_path, carry_out
):
    folder = shutil.copytree(corpus, tmp_path / "text")
    spoil, part = UNUSABLE[fault]
    spoil(folder)
    (tmp_path / "runs" / "other").mkdir(parents=True)
    assert_clear(carry_out("train", *tiny(folder, tmp_path / "runs")), part)
    assert [*(tmp_path / "runs").rglob("*")] == [tmp_path / "runs" / "other"]


@pytest.mark.parametrize("task", ["translation", "lm"])
def test_a_vocabulary_smaller_than_the_special_tokens_is_refused(
    task: str, tmp_path: Path, carry_out
):
    argv = ("train", f"task={task}", "task.vocab_size=3", f"runs_dir={tmp_path}")
    argv += (f"data_dir={tmp_path}",) if task == "translation" else ()
    assert_clear(carry_out(*argv), "task.vocab_size=3", "special tokens")


def test_a_name_too_long_for_a_record_is_refused_before_training(
    corpus: Path, tmp_path: Path, carry_out, monkeypatch
):
    name = "a" * (251 - len("translation--pre-0123456789"))
    (tmp_path / "own" / "norm").mkdir(parents=True)
    (tmp_path / "own" / "norm" / f"{name}.yaml").write_text("defaults: [ln]\n")
    argv = tiny(corpus, tmp_path / "runs", f"norm={name}", f"include={tmp_path / 'own'}")
    assert_clear(carry_out("train", *argv), "nothing was trained", "run_id")
    assert not (tmp_path / "runs").exists()


def test_a_finished_run_refuses_new_measurements_and_eval_makes_them(
    copied: Path, corpus: Path, tmp_path: Path, carry_out
):
    argv = ("train", *tiny(corpus, tmp_path / "runs", *SAME))
    for asked, score in {
        "observe.test_noise=[0.25]": "test/noise_0.25/loss",
        "observe.test_weight_noise=[0.25]": "test/weight_noise_0.25/loss",
        "observe.test_seen=6": "test/seen/loss",
        "observe.targets={loss: [1e9]}": "valid/steps_to/loss_1e+09",
    }.items():
        refused = carry_out(*argv, asked)
        assert_clear(refused, "has ended, and was tested without", asked.partition("=")[0])
        assert f"normlab eval {copied} " in refused.output
        answered = carry_out("eval", str(copied), asked)
        assert answered.status == 0 and score in answered.output, answered.output


def test_a_damaged_record_is_a_one_line_error_and_stays_unchanged(
    copied, corpus, tmp_path, carry_out
):
    record = copied / "record.json"
    record.write_text("{")
    assert_clear(carry_out("train", *tiny(corpus, tmp_path / "runs", *SAME)), str(record))
    assert record.read_text() == "{"


def test_the_last_line_shows_outcome_and_scores(copied: Path, corpus: Path, tmp_path, carry_out):
    ended = carry_out("train", *tiny(corpus, tmp_path / "runs", *SAME))
    assert ended.status == 0
    before, line = ended.output.splitlines()
    assert before.endswith(f"this run has ended; its record is {copied / 'record.json'}")
    assert all(x in line for x in ("translation-bn-pre-", "finished at step 12", "test/bleu"))


def test_a_terminal_shows_the_scores_of_a_run_once(corpus, tmp_path, monkeypatch):
    argv = ["train", *tiny(corpus, tmp_path / "runs", *QUICK, "budget.steps=1", "sink=[console]")]
    shown: list[str] = []
    for place in ("first", "again", "log"):  # an ended run prints only this
        with open(tmp_path / place, "w+") as both:
            both.isatty = lambda place=place: place != "log"
            monkeypatch.setattr(sys, "stdout", both)
            monkeypatch.setattr(sys, "stderr", both)
            argv = [*argv, "seed=2"] if place == "log" else argv
            assert main([*argv]) == 0
            both.seek(0)
            shown.append(both.read())
    assert [" ".join(text.split()).count("test/bleu ") for text in shown] == [1, 1, 2]
    assert "next:" in shown[0] and "next:" not in shown[1]
    assert "finished at step 1" in shown[2].splitlines()[-1], "a sweep shows the last line of a log"


def test_cfg_job_shows_the_config_and_trains_nothing(corpus, tmp_path, carry_out):
    ended = carry_out("train", *tiny(corpus, tmp_path / "runs", "norm=bn"), "--cfg", "job")
    assert ended.status == 0 and "padding: exclude" in ended.output
    assert not (tmp_path / "runs").exists()


def test_a_sweep_with_an_unknown_option_fails_before_any_run(tmp_path, carry_out):
    ended = carry_out("train", "-m", "norm=ln,batch", f"runs_dir={tmp_path}")
    assert_clear(ended, "batch")
    assert not list(tmp_path.rglob("log.txt"))


def test_a_sweep_trains_duplicate_runs_once(copied, corpus, tmp_path, carry_out):
    same = ("optim.lr=0.01,1e-2", "seed=1,1", *SAME)
    ended = carry_out("train", "-m", *tiny(corpus, tmp_path / "runs", *same))
    assert ended.status == 0, ended.output
    assert ended.output.count("all defaults is listed twice, so it is trained once") == 3
    assert "1 of 1 runs had already ended" in ended.output
    cells = [RunToStart(name, (name,), tmp_path) for name in ("norm=ln", "norm=layernorm")]
    assert each_run_once(cells) == cells[:1]


def test_a_sweep_does_not_show_scores_of_runs_trained_on_different_text(
    copied, corpus, tmp_path, carry_out
):
    text = shutil.copytree(corpus, tmp_path / "text")
    (text / "train.de").write_text((text / "train.de").read_text().replace("Hund", "Wolf"))
    ended = carry_out("train", "-m", *tiny(text, tmp_path / "runs", *SAME))
    assert ended.status == 1 and "was trained on different data: train.de differs" in ended.output
    assert "bleu" not in ended.output


def test_a_sweep_skips_finished_runs_and_lists_failed_ones(copied, corpus, tmp_path, carry_out):
    before = (copied / "record.json").stat().st_mtime_ns
    *words, last = tiny(corpus, tmp_path / "runs", *SAME, "accumulate=1,0")
    settings = tmp_path / "my.yaml"
    key, _, value = words.pop().partition("=")
    settings.write_text(f"{key.replace('.', ': {')}: {value}{'}' * key.count('.')}\n")
    ended = carry_out("train", "-m", str(settings), *words, last)
    assert ended.status == 1 and "Traceback" not in ended.output, ended.output
    assert "1 of 2 runs had already ended and are skipped" in ended.output
    assert "0 of 1 runs done" in ended.output and "accumulate=0 must be above 0" in ended.output
    assert (copied / "record.json").stat().st_mtime_ns == before
