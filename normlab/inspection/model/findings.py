"""Asks questions about a model: `normlab.inspect_run` and `normlab.inspect_config`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from normlab.config.run_config import to_dict
from normlab.errors import UserError
from normlab.findings.finding import Finding, Findings
from normlab.findings.question import Question
from normlab.inspection.model.built_model import BuiltModel, model_from_config, model_from_run
from normlab.inspection.questions import questions
from normlab.training.runtime import torch_settings_kept


@torch_settings_kept()
def inspect_run(folder: Path | str, only: Sequence[str] | None = None) -> Findings:
    """Return what `normlab inspect RUN` finds about a finished run, by question.

    `only` has the names of the questions to ask, by default all. No file is written. Raises
    UserError for a damaged run, an unknown question, or an empty `only`.
    """
    chosen = _chosen(only)
    return _answers(model_from_run(Path(folder), []), chosen, by_name=only is not None)


@torch_settings_kept()
def inspect_config(config: Mapping[str, Any], only: Sequence[str] | None = None) -> Findings:
    """Return what `normlab inspect key=value ...` finds about an untrained model, by question.

    `config` is what `normlab.compose` returns. `only` has the names of the questions to ask, by
    default all that do not need a trained model. Raises UserError for an unknown question or an
    empty `only`.
    """
    if not isinstance(config, Mapping):
        raise UserError(
            f"normlab.inspect_config expects a config, not a {type(config).__name__}: pass "
            'normlab.compose(["norm=bn", "task=toy"])'
        )
    chosen = _chosen(only)
    return _answers(model_from_config(to_dict(config)), chosen, by_name=only is not None)


def _chosen(only: Sequence[str] | None) -> list[Question]:
    """Return the questions to ask. Raise UserError if one is unknown or if `only` is empty."""
    if only is None:
        return questions("model")
    if not only:
        raise UserError(f"only={only!r} names no question; omit only= to ask all questions")
    return questions("model", names=[only] if isinstance(only, str) else only)


def _answers(built: BuiltModel, chosen: Sequence[Question], *, by_name: bool) -> Findings:
    return Findings({each.name: finding_on(each, built, by_name=by_name) for each in chosen})


def finding_on(question: Question, built: BuiltModel, *, by_name: bool) -> Finding:
    """Ask a question about a model, and return the answer.

    If the question is about trained models, it does not apply to an untrained model, unless the
    user asked it `by_name`.
    """
    if question.trained and not built.step and not by_name:
        return Finding.none("the model is untrained")
    return question.ask(built)
