"""The content of `inspect.json`: findings about one model, or about several runs side by side."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from normlab.findings.finding import Finding
from normlab.findings.question import Question
from normlab.inspection.model.built_model import BuiltModel, model_from_run
from normlab.inspection.questions import entry, questions
from normlab.records.pairs import Summary
from normlab.records.record import RunRecord, plain
from normlab.reports.arrangement.unplanned import arrange
from normlab.reports.runs import unplaced_run

FORMAT = "normlab.inspect/2"


def sheet(built: BuiltModel, answers: Mapping[str, Finding]) -> dict[str, Any]:
    """Return the content of `inspect.json` for one model as plain values."""
    by_name = {each.name: each for each in questions("model")}
    return plain(
        {
            "format": FORMAT,
            "subject": {
                "run": built.run_id,
                "step": built.step,
                "seed": built.seed,
                "config": built.config,
                "params": sum(parameter.numel() for parameter in built.model.parameters()),
            },
            "environment": built.runtime.environment(),
            "data": built.task.describe(),
            "findings": {
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


class ComparedSheets(NamedTuple):
    """The content of `inspect.json` for several runs, and the columns of each question.

    In the content, `rows` has the mean, the standard deviation and the number of seeds of each
    column for each experiment, and `runs` has the sheet of each run, keyed by folder.
    """

    content: dict[str, Any]
    columns: dict[str, list[str]]


def sheets_side_by_side(
    runs: Mapping[Path, RunRecord],
    changes: list[str],
    chosen: Sequence[Question],
    doing: Callable[[str], AbstractContextManager[None]],
) -> ComparedSheets:
    """Ask the questions about several runs, each inside the context `doing(STAGE)`."""
    values: dict[str, dict[str, list[Any]]] = {}
    columns = {each.name: dict[str, None]() for each in chosen}
    sheets: dict[str, Any] = {}
    for run in arrange([unplaced_run(*each) for each in runs.items()]).runs:
        of_row = values.setdefault(f"{run.key.row} {run.key.point}".strip(), {})
        with doing(f"run {len(sheets) + 1} of {len(runs)}"):
            built = model_from_run(run.folder or Path(), changes)
            answers = {each.name: each.ask(built) for each in chosen}
        sheets[str(run.folder)] = sheet(built, answers)
        for name, each in answers.items():
            columns[name] |= dict.fromkeys(each.board)
            for column, value in each.board.items():
                of_row.setdefault(column, []).append(value)
    rows = {
        row: {column: asdict(Summary.of(seeds)) for column, seeds in by_column.items()}
        for row, by_column in values.items()
    }
    content = {"format": FORMAT, "rows": rows, "runs": sheets}
    return ComparedSheets(content, {name: [*titles] for name, titles in columns.items()})
