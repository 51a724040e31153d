"""`normlab predict` translates each line of its input into one line of output."""

import io
import shutil
import sys
from pathlib import Path

import pytest

from normlab.cli import main


@pytest.fixture
def translated(capsys, monkeypatch):
    """Return a function that translates bytes and returns the exit status and the output."""

    def translate(text: bytes, run: Path, *changes: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text), encoding="utf-8"))
        capsys.readouterr()
        status = main(["predict", str(run), *changes])
        captured = capsys.readouterr()
        return status, captured.out if status == 0 else captured.err

    return translate


def test_predict_reproduces_the_translations_of_the_test_set(finished, corpus, translated):
    source = (corpus / "test.de").read_bytes()
    expected = (finished / "hypotheses.txt").read_text(encoding="utf-8")
    assert translated(source, finished.parent) == (0, expected)
    alone = translated(source.splitlines()[1], finished)
    assert alone == (0, f"{expected.splitlines()[1]}\n")


def test_predict_recalibrates_running_statistics_if_the_test_did(recalibrating, corpus, translated):
    source = (corpus / "test.de").read_bytes()
    expected = (recalibrating / "hypotheses.txt").read_text(encoding="utf-8")
    assert translated(source, recalibrating) == (0, expected)
    running = translated(source, recalibrating, "validate.average_statistics=average")
    assert running != (0, expected)


def test_recalibration_for_predict_needs_the_data_of_the_run(recalibrating, tmp_path, translated):
    status, error = translated(b"der Hund\n", recalibrating, f"data_dir={tmp_path / 'nowhere'}")
    assert status == 1 and "recalibrates its running statistics" in error
    assert str(tmp_path / "nowhere") in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (b"", "standard input"),
        (b"der Hund\n\xff\xfe\n", "line 2"),
        (b"der Hund\n\nder Mann\n", "line 2"),
        (b"der Hund\n" + b"der Mann " * 200 + b"\n", "line 2"),
    ],
    ids=["no input", "not UTF-8", "an empty line", "a long line"],
)
def test_the_error_for_an_untranslatable_input_names_its_line(text, part, finished, translated):
    status, error = translated(text, finished)
    assert status == 1 and part in error and error.count("\n") == 1


def test_predict_needs_a_single_run(finished, tmp_path, translated):
    for seed in (1, 2):
        shutil.copytree(finished, tmp_path / "a" / f"seed{seed}")
    status, error = translated(b"der Mann sieht den Hund heute.\n", tmp_path / "a")
    assert status == 1 and "has 2 runs; choose one, such as" in error


def test_a_closed_standard_input_is_an_error(finished, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["predict", str(finished)]) == 1
    assert "standard input is closed; pass text" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--tokens=5", "--tokens is for language models, but this run translates"),
        ("--temperature=nan", "temperature=nan must be a number, 0 or more"),
        ("--seed=-1", "--seed=-1 must be 0 or more"),
    ],
)
def test_flags_that_cannot_act_or_are_no_numbers_are_refused(flag, said, finished, translated):
    status, error = translated(b"der Hund\n", finished, flag)
    assert status == 1 and said in error and error.count("\n") == 1
