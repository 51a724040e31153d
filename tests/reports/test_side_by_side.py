"""Samples of the test on pages: which sentences, of which runs, and what is left out."""

from dataclasses import replace

from normlab.reports.arrange import arranged
from normlab.reports.published import PAGE, publish, rendered
from normlab.reports.runs import Watched
from normlab.reports.study_page import runs_page
from normlab.reports.translations import side_by_side
from tests.html_text import Text
from tests.records.examples import changed
from tests.reports.tables import made, planned, study

HEBREW = "\N{HEBREW LETTER ALEF}\N{HEBREW LETTER BET}"
LINES = ["<b>one</b>", HEBREW, "\N{RIGHT-TO-LEFT OVERRIDE}three", "", "five"]
SIDES = ([f"Satz {n}" for n in range(5)], [f"sentence {n}" for n in range(5)])


def translated(root, norm, seed, lines, **changes):
    """Write a run that left translations; return its folder."""
    record = made(norm, seed, {"test/bleu": 1.0}, data={"label": "toy & co"}, **changes)
    folder = root / record.run_id / f"seed{seed}"
    folder.mkdir(parents=True)
    (folder / "record.json").write_text(record.to_json())
    (folder / "hypotheses.txt").write_text("".join(line + "\n" for line in lines))
    return folder


def page_of(root, text_of=None):
    watched = Watched([root])
    watched.look()
    return Text(runs_page(arranged(watched.runs(str)), "runs", text_of=text_of))


def test_the_first_seed_of_each_setting_stands_beside_the_text(tmp_path):
    for norm, seed in (("ln", 2), ("ln", 1), ("bn", 1)):
        translated(tmp_path, norm, seed, [f"{norm}{seed} {line}" for line in LINES])
    read = page_of(tmp_path, lambda record: SIDES)
    rows = read.rows("samples")
    assert rows[0] == ["of", "chrF", "text"] and len(rows) == 1 + 5 * 5
    assert rows[1:6] == [
        ["sentence 1"],
        ["source", "", "Satz 0"],
        ["reference", "", "sentence 0"],
        ["ln seed 1", rows[4][1], "ln1 <b>one</b>"],
        ["bn seed 1", rows[5][1], "bn1 <b>one</b>"],
    ]
    assert 0 <= float(rows[4][1]) <= 100
    assert not {"b"} & {tag for tag, _ in read.tags}
    assert r"\u202ethree" in read.text, "a mark that turns lines is written out"
    cells = [attributes for tag, attributes in read.tags if tag == "td" and "dir" in attributes]
    assert len(cells) == 20 and {each["dir"] for each in cells} == {"auto"}
    assert "toy & co" in read.text


def test_without_the_text_translations_stand_alone_and_why_is_said(tmp_path):
    translated(tmp_path, "ln", 1, LINES)
    broken = translated(tmp_path, "bn", 1, LINES[:3])

    def nowhere(record):
        raise ValueError("data_dir=/gone: no such folder")

    read = page_of(tmp_path, nowhere)
    assert read.rows("samples")[1:3] == [["sentence 1"], ["ln seed 1", "", "<b>one</b>"]]
    assert ["ln seed 1", "", "(nothing)"] in read.rows("samples")
    assert "Without sources and references: data_dir=/gone" in read.text
    assert "3 translations of 5 sentences" in read.text
    (broken / "hypotheses.txt").write_bytes(b"a\xff\n")
    assert "hypotheses.txt: not UTF-8" in page_of(tmp_path, nowhere).text


def test_tests_of_other_texts_are_groups_and_runs_without_any_are_none(tmp_path):
    folders = [translated(tmp_path, norm, 1, LINES) for norm in ("ln", "bn")]
    watched = Watched([tmp_path])
    watched.look()
    evidence = list(arranged(watched.runs(str)).runs)
    assert evidence[1].record is not None
    other = changed(evidence[1].record, data={"checksums": {"test": {"de": "other"}}})
    found = side_by_side([evidence[0], replace(evidence[1], record=other)])
    assert [group.data for group in found] == ["toy & co", "unknown data"]
    for folder in folders:
        (folder / "hypotheses.txt").unlink()
    assert side_by_side(evidence) == [] and "Samples" not in page_of(tmp_path).text


def test_a_published_study_shows_what_lies_beside_its_records(tmp_path):
    folder = translated(tmp_path / "runs", "ln", 1, LINES)
    record = made("ln", 1, {"test/bleu": 1.0})
    published = publish(
        tmp_path / "results", study(), "smoke", [(planned("ln", 1), record)], folders=[folder]
    )
    read = Text(rendered(study(), published)[published / PAGE])
    assert read.rows("samples")[2] == ["ln seed 1", "", "<b>one</b>"]
    assert "The text itself is not published" in read.text
