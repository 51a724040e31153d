"""Sentences side by side: which are shown, what each run made of them, and what is refused."""

import json

import pytest

from normlab.commands.compare import main
from normlab.records.record import Score
from tests.commands.test_bootstrap import changed


def shown(capsys, *argv):
    argv = argv if "--samples" in argv else (*argv, "--samples")
    assert main([*argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def folders(translated):
    """Return seed 2 of both runs."""
    return [str(next(translated.root.glob(f"*-{norm}-pre-*/seed2"))) for norm in ("ln", "bn")]


def test_the_same_sentences_of_all_runs_beside_their_source_and_reference(folders, text, capsys):
    sides = {code: (text / f"test.{code}").read_text().splitlines() for code in ("de", "en")}
    found = shown(capsys, *folders, "--samples", "4")
    assert len(found) == 4 and sorted(found, key=lambda each: each["line"]) == found
    for each in found:
        at = each["line"] - 1
        assert (each["source"], each["reference"]) == (sides["de"][at], sides["en"][at])
        for folder, norm in zip(folders, ("ln", "bn"), strict=True):
            with open(f"{folder}/hypotheses.txt") as file:
                assert each["outputs"][norm] == file.read().splitlines()[at]
    assert found != shown(capsys, *folders, "--samples", "4", "--draw", "2")
    assert len(shown(capsys, folders[0], "--samples", "99")) == 30


def test_the_worst_and_those_where_runs_differ_most(folders, capsys):
    every = shown(capsys, *folders, "--samples", "30")
    gaps = {each["line"]: abs(each["chrf"]["ln"] - each["chrf"]["bn"]) for each in every}
    differ = shown(capsys, *folders, "--differ", "--samples", "3")
    assert [gaps[each["line"]] for each in differ] == sorted(gaps.values())[:-4:-1]
    means = {each["line"]: sum(each["chrf"].values()) for each in every}
    worst = shown(capsys, *folders, "--worst", "--samples", "3")
    assert [means[each["line"]] for each in worst] == sorted(means.values())[:3]


def test_eighty_columns_are_enough_and_seeds_are_named(translated, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main([str(translated.root), "--samples", "2"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert out.count("  ln seed3  ") == 2 and "2 of 30 sentences, drawn by --draw 1" in out


def test_what_cannot_be_shown_is_refused_with_the_reason(folders, translated, tmp_path):
    ln, bn = folders
    for argv, message in [
        ((ln, "--samples", "--differ"), "there is one: name two"),
        ((ln, bn, "--worst"), "add --samples"),
        ((ln, "--samples", "0"), "at least 1"),
        ((ln, "--samples", "--split", "test_2017"), "'test_2017'; there are those of test"),
        ((ln, "--samples", "--data-dir", str(tmp_path / "gone")), "text of the test cannot be had"),
    ]:
        with pytest.raises(ValueError, match=message):
            main(list(argv))
    changed(translated.root.parent / bn, data={"checksums": {"test": {"de": "a", "en": "b"}}})
    with pytest.raises(ValueError, match="were tested on other texts"):
        main([ln, bn, "--samples"])
    (translated.root.parent / bn / "hypotheses.txt").unlink()
    with pytest.raises(ValueError, match=r"no hypotheses\.txt there, .* and no weights"):
        main([bn, "--samples"])
    changed(translated.root.parent / bn, scores={"test/mlm_accuracy": Score(0.1, True, 3)})
    with pytest.raises(ValueError, match="it left no translations to show"):
        main([bn, "--samples"])
