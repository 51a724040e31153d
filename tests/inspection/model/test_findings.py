"""Which questions about a model are answered."""

import pytest

import normlab
from normlab.errors import UserError
from normlab.inspection.model.findings import finding_on
from normlab.inspection.questions import questions
from tests.inspection.tiny_models import untrained


def test_questions_about_trained_models_are_answered_for_an_untrained_one_if_asked_by_name(
    tmp_path,
):
    about = untrained(tmp_path, "norm=bn")
    (skip,) = questions("model", names=["layer_skip"])
    assert finding_on(skip, about, by_name=False).why_not == "the model is untrained"
    assert not finding_on(skip, about, by_name=True).why_not


def test_an_empty_list_of_questions_is_an_error_and_does_not_ask_all():
    config = normlab.compose(["norm=bn", "task=toy"])
    for empty in ([], ""):
        with pytest.raises(UserError, match=r"only=.* names no question; omit only="):
            normlab.inspect_config(config, only=empty)
