"""The questions of all folders, and a finding's entry in a file."""

from pathlib import Path

import pytest

from normlab.errors import UserError
from normlab.findings.finding import AnswerTable, Finding
from normlab.inspection import questions as module
from normlab.inspection.questions import entry, questions


def test_every_question_in_the_files_is_found():
    files = [p.read_text("utf-8") for p in Path(module.__file__).parent.rglob("[a-z]*.py")]
    asked = sum(text.count("\n@question(") for text in files)
    assert sum(len(questions(kind)) for kind in ("model", "norm", "card")) == asked


def test_a_question_about_a_model_or_a_card_is_in_the_file_of_its_name():
    shared = {"held_out_probes", "short_runs"}
    files = {
        each.name: each.ask.__module__.rpartition(".")[2] for each in questions("model", "card")
    }
    assert {name: file for name, file in files.items() if file not in shared | {name}} == {}


def test_questions_are_found_by_name_and_the_error_for_an_unknown_name_lists_all():
    assert [each.name for each in questions("model", names=["leak"])] == ["leak"]
    with pytest.raises(UserError, match=r"'leek' is not a question; .*leak"):
        questions("model", names=["leek"])


def test_an_entry_contains_the_values_table_and_board_of_a_finding():
    (leak,) = questions("model", names=["leak"])
    found = Finding("so", {"own": 1.0}, AnswerTable(("a",), [(1,)]), board={"mates": 2.0})
    shown = entry(leak, found)
    assert shown["question"] == leak.text and shown["answer"] == "so" and shown["applies"]
    assert (shown["values"], shown["columns"], shown["rows"]) == ({"own": 1.0}, ("a",), [(1,)])
    assert shown["board"] == {"mates": 2.0} and shown["why_not"] is None
    refused = entry(leak, Finding.none("no text"))
    assert not refused["applies"] and refused["why_not"] == "no text"
