"""`normlab compare --samples` shows sentences and their translations side by side."""

import re

import pytest

from normlab.commands.compare import main, show_sentences
from normlab.commands.report import main as report
from normlab.reports.translations.side_by_side import SentenceVersion, SideBySide
from tests.commands.test_compare_bootstrap import changed
from tests.html_text import Text
from tests.test_architecture import loaded_after


@pytest.fixture
def folders(translated, monkeypatch):
    """Return seed 2 of both runs."""
    monkeypatch.setenv("COLUMNS", "400")
    return [str(next(translated.root.glob(f"*-{norm}-pre-*/seed2"))) for norm in ("ln", "bn")]


def shown(capsys, *argv):
    """Return the texts of each sentence by kind (source, reference or row), and the output."""
    assert main([*argv]) == 0
    out = capsys.readouterr().out
    found = {}
    for block in out.split("sentence ")[1:]:
        number, *lines = block.partition("\n\n")[0].splitlines()
        rows = (re.fullmatch(r"  (\S+(?: seed \d)?) +(?:[\d.]+ )? *(.*)", line) for line in lines)
        found[int(number)] = {row[1]: row[2] for row in rows if row}
    return found, out


def test_samples_show_source_reference_and_the_translation_of_each_row(folders, text, capsys):
    sides = {code: (text / f"test.{code}").read_text().splitlines() for code in ("de", "en")}
    found, out = shown(capsys, *folders, "--samples", "4")
    assert len(found) == 4 and [*found] == sorted(found)
    for line, own in found.items():
        assert own["source"] == sides["de"][line - 1]
        assert own["reference"] == sides["en"][line - 1]
        for folder, norm in zip(folders, ("ln", "bn"), strict=True):
            with open(f"{folder}/hypotheses.txt") as file:
                assert own[f"{norm} seed 2"] == file.read().splitlines()[line - 1].strip()
    assert (
        "4 of the 30 sentences of" in out
        and "the number after a translation is its chrF" in " ".join(out.split())
    )
    assert len(shown(capsys, folders[0], "--samples", "99")[0]) == 30


def test_samples_fit_in_eighty_columns_and_show_the_first_seed_of_each_row(
    translated, capsys, monkeypatch
):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main([str(translated.root), "--samples", "2"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert out.count("  ln seed 1  ") == 2 and out.count("  bn seed 2  ") == 2


def test_a_long_name_gets_its_own_line_and_a_long_word_is_broken(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    name = "bn+ln post, learning rate 0.0005, 3,000 steps seed 1"
    texts = [
        SentenceVersion("source", "ein Hund " * 20),
        SentenceVersion(name, "a dog " * 30 + "dog" * 60, 12.5),
    ]
    show_sentences(SideBySide("toy", 1, {1: texts}, []))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80 and f"  {name}" in lines
    assert lines[lines.index(f"  {name}") + 1].split()[:2] == ["12.5", "a"]


def test_errors_say_why_sentences_cannot_be_shown(folders, translated, tmp_path, capsys):
    ln, bn = folders
    with pytest.raises(ValueError, match=r"--samples=0 must be at least 1"):
        main([ln, "--samples", "0"])
    with pytest.raises(ValueError, match=r"the test text cannot be read: .*--data-dir"):
        main([ln, "--samples", "--data-dir", str(tmp_path / "gone")])
    changed(translated.root.parent / bn, data={"checksums": {"test": {"de": "a", "en": "b"}}})
    out = shown(capsys, ln, bn, "--samples")[1]
    assert "translated a different test set" in out
    for folder in folders:
        (translated.root.parent / folder / "hypotheses.txt").unlink()
    with pytest.raises(ValueError, match=r"hypotheses\.txt does not exist, .* normlab eval"):
        main([bn, "--samples"])


def test_the_report_shows_the_same_sentences_or_says_why_it_cannot(folders, text, tmp_path, capsys):
    found, _ = shown(capsys, *folders, "--samples")

    def sections(*more):
        assert report([*folders, "--out", str(tmp_path), *more]) == 0
        return Text((tmp_path / "report.html").read_text())

    rows = [row[:2] for row in sections().rows("samples")]
    assert all([name, said] in rows for own in found.values() for name, said in own.items())
    assert "the test text cannot be read" in sections("--data-dir", str(tmp_path / "gone")).text


def test_samples_are_shown_without_importing_torch(folders, translated):
    places = [str(translated.root.parent.resolve() / folder) for folder in folders]
    call = f"from normlab.commands.compare import main; main({[*places, '--samples']})"
    assert "torch" not in loaded_after(call)
