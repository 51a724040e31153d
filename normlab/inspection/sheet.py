"""`normlab inspect` on models that normlab built: the findings about one or several, as a sheet."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from normlab.config.plain import to_dict
from normlab.errors import UserError
from normlab.findings.finding import Finding, Findings
from normlab.findings.question import Question
from normlab.inspection.questions import entry, questions
from normlab.inspection.subject import Subject, subject_of, subject_of_run
from normlab.records.pairs import Summary
from normlab.records.record import RunRecord, plain
from normlab.reports.runs import unplaced_run
from normlab.reports.tables.arrangement import arranged
from normlab.training.runtime import torch_settings_kept

FORMAT = "normlab.inspect/1"


@torch_settings_kept()
def inspect_run(folder: Path | str, only: Sequence[str] = ()) -> Findings:
    """Return what `normlab inspect RUN` finds out about a finished run, by question.

    `only` names the questions to ask, by default all. No file is written. Raises UserError for an
    unknown question or a damaged run.
    """
    chosen = _chosen(only)
    return _answers(subject_of_run(Path(folder), []), chosen, by_name=bool(only))


@torch_settings_kept()
def inspect_config(config: Mapping[str, Any], only: Sequence[str] = ()) -> Findings:
    """Return what `normlab inspect key=value ...` finds out about an untrained model, by question.

    `config` is what `normlab.compose` returns. `only` names the questions to ask, by default those
    that an untrained model can answer. Raises UserError for an unknown question.
    """
    if not isinstance(config, Mapping):
        raise UserError(
            f"normlab.inspect_config expects a config, not a {type(config).__name__}: pass "
            'normlab.compose(["norm=bn", "task=toy"])'
        )
    chosen = _chosen(only)
    return _answers(subject_of(to_dict(config)), chosen, by_name=bool(only))


def _chosen(only: Sequence[str]) -> list[Question]:
    return questions("model", names=[only] if isinstance(only, str) else only)


def _answers(subject: Subject, chosen: Sequence[Question], *, by_name: bool) -> Findings:
    return Findings({each.name: answer(each, subject, by_name=by_name) for each in chosen})


def answer(question: Question, subject: Subject, *, by_name: bool) -> Finding:
    """Return the answer to a question.

    A model at initialization gets questions about trained models only if they are asked `by_name`.
    """
    if question.trained and not subject.step and not by_name:
        return Finding.none("the model is untrained")
    return question.ask(subject)


def sheet(subject: Subject, answers: Mapping[str, Finding]) -> dict[str, Any]:
    """Return the content of `inspect.json` as plain values."""
    by_name = {each.name: each for each in questions("model")}
    return plain(
        {
            "format": FORMAT,
            "subject": {
                "run": subject.run_id,
                "step": subject.step,
                "seed": subject.seed,
                "config": subject.config,
                "params": sum(parameter.numel() for parameter in subject.model.parameters()),
            },
            "environment": subject.runtime.environment(),
            "data": subject.task.describe(),
            "examinations": {
                name: {
                    **entry(by_name[name], each),
                    "verdict": each.verdict,
                    "value": each.value,
                    "threshold": each.threshold,
                }
                for name, each in answers.items()
            },
        }
    )


def side_by_side(
    runs: Mapping[Path, RunRecord],
    changes: list[str],
    chosen: Sequence[Question],
    doing: Callable[[str], AbstractContextManager[None]],
) -> tuple[dict[str, Any], dict[str, dict[str, None]]]:
    """Ask the questions about several runs, each inside `doing(STAGE)`.

    Returns the content of `inspect.json`, and each question's columns. In the content, `rows` has
    each experiment's values (mean, standard deviation and number of seeds), and `runs` the sheets.
    """
    values: dict[str, dict[str, list[Any]]] = {}
    columns = {each.name: dict[str, None]() for each in chosen}
    sheets: dict[str, Any] = {}
    for run in arranged([unplaced_run(*each) for each in runs.items()]).runs:
        of_row = values.setdefault(f"{run.key.row} {run.key.point}".strip(), {})
        with doing(f"run {len(sheets) + 1} of {len(runs)}"):
            subject = subject_of_run(run.folder or Path(), changes)
            answers = {each.name: each.ask(subject) for each in chosen}
        sheets[str(run.folder)] = sheet(subject, answers)
        for name, each in answers.items():
            columns[name] |= dict.fromkeys(each.board)
            for column, value in each.board.items():
                of_row.setdefault(column, []).append(value)
    rows = {
        row: {column: asdict(Summary.of(seeds)) for column, seeds in by_column.items()}
        for row, by_column in values.items()
    }
    return {"format": FORMAT, "rows": rows, "runs": sheets}, columns
