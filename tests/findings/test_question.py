"""Questions are found by their decorator, in any file below a package."""

import sys

import pytest

from normlab.errors import UserError
from normlab.findings import question as questions
from normlab.findings.question import questions_below


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Return the name of a package with a question in a file and one in a folder below it."""
    monkeypatch.setattr(questions, "_REGISTRY", dict(questions._REGISTRY))
    text = (
        "from normlab.findings.question import question\n"
        "@question({name!r}, of='module', slow=True)\n"
        'def ask(subject):\n    """What is it?\n\n    More on that.\n    """\n'
    )
    below = tmp_path / "asked_by_a_test" / "below"
    below.mkdir(parents=True)
    (below.parent / "__init__.py").touch()
    (below / "__init__.py").touch()
    (below.parent / "zebra.py").write_text(text.format(name="first_name"))
    (below / "ant.py").write_text(text.format(name="second_name"))
    monkeypatch.syspath_prepend(tmp_path)
    yield below.parent.name
    for name in [name for name in sys.modules if name.startswith(below.parent.name)]:
        del sys.modules[name]


def test_a_question_in_a_new_file_is_found_with_the_first_line_of_its_docstring(package):
    found = questions_below(package, "module")
    assert [question.name for question in found] == ["second_name", "first_name"]  # by file
    assert {(question.text, question.slow) for question in found} == {("What is it?", True)}
    assert questions_below(package, "norm") == []


def test_questions_selected_by_name_come_only_from_the_given_package(package):
    (found,) = questions_below(package, "module", names=["first_name"])
    assert found.name == "first_name"
    with pytest.raises(
        UserError, match="'padding' is not a question; choose from first_name, second_name"
    ):
        questions_below(package, "module", names=["padding"])
