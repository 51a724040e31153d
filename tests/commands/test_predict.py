"""`normlab predict`: of a run of translation as many lines come out as went in."""

import io
import shutil
import sys
from pathlib import Path

import pytest

from normlab.cli import main
from tests.tiny_runs import run, tiny, write_corpus


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a finished run and the text it was tested on."""
    folder = tmp_path_factory.mktemp("finished")
    corpus = write_corpus(folder / "text")
    ended = run(["train", *tiny(corpus, folder / "runs", "norm=bn")], folder / "log")
    assert ended.status == 0, ended.output
    return folder


@pytest.fixture
def finished(folder: Path) -> Path:
    (record,) = (folder / "runs").rglob("record.json")
    return record.parent


def translated(text: bytes, finished: Path, *changes: str, capsys, monkeypatch) -> tuple[int, str]:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text), encoding="utf-8"))
    capsys.readouterr()
    status = main(["predict", str(finished), *changes])
    captured = capsys.readouterr()
    return status, captured.out if status == 0 else captured.err


def test_the_test_set_comes_out_as_in_the_test(folder: Path, finished: Path, capsys, monkeypatch):
    """Also in an order of lines that is not that of their lengths."""
    source = (folder / "text" / "test.de").read_bytes()
    status, out = translated(source, finished, capsys=capsys, monkeypatch=monkeypatch)
    assert status == 0
    assert out == (finished / "hypotheses.txt").read_text(encoding="utf-8")


def test_lines_do_not_depend_on_one_another(finished: Path, capsys, monkeypatch):
    lines = ["der Mann sieht den Hund heute.", "der Baum malt den Brief am Abend und heute."]
    alone = [
        translated(f"{x}\n".encode(), finished, capsys=capsys, monkeypatch=monkeypatch)[1]
        for x in lines
    ]
    text = "".join(f"{x}\n" for x in lines).encode()
    together = translated(text, finished, capsys=capsys, monkeypatch=monkeypatch)[1]
    assert together == "".join(alone)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (b"", "standard input"),
        (b"der Hund\n\xff\xfe\n", "line 2"),
        (b"der Hund\n\nder Mann\n", "line 2"),
        (b"der Hund\n" + b"der Mann " * 200 + b"\n", "line 2"),
    ],
    ids=["nothing", "not UTF-8", "empty", "too long"],
)
def test_what_cannot_be_translated_is_named(
    text: bytes, part: str, finished: Path, capsys, monkeypatch
):
    status, error = translated(text, finished, capsys=capsys, monkeypatch=monkeypatch)
    assert status == 1
    assert part in error
    assert error.count("\n") == 1


def test_an_experiment_of_one_run_is_that_run_and_of_several_a_question(
    finished: Path, tmp_path, capsys, monkeypatch
):
    line = b"der Mann sieht den Hund heute.\n"
    one = translated(line, finished, capsys=capsys, monkeypatch=monkeypatch)
    assert translated(line, finished.parent, capsys=capsys, monkeypatch=monkeypatch) == one
    for seed in (1, 2):
        shutil.copytree(finished, tmp_path / "a" / f"seed{seed}")
    status, error = translated(line, tmp_path / "a", capsys=capsys, monkeypatch=monkeypatch)
    assert status == 1 and "has 2 runs: name one, such as" in error
