"""Re-scores the translations that were kept with a run, without its model."""

from collections.abc import Sequence
from pathlib import Path

from normlab.config.run_config import check_acting, from_dict, to_dict
from normlab.errors import UserError
from normlab.records.record import Score
from normlab.records.store import HYPOTHESES_FILE, hypotheses_file, read_hypotheses, read_record
from normlab.tasks.base import Task
from normlab.training.build import build_task
from normlab.training.data_changes import check_data


def score_kept(folder: Path, changes: Sequence[str]) -> dict[str, Score]:
    """Rescore the translations kept with a run, with changed settings."""
    record = read_record(folder)
    config = to_dict(from_dict(record.config, changes))
    check_acting(changes, ("task", "data_dir"))
    task = build_task(config)
    check_data(folder, record, task, config)
    scores = rescored(folder, task)
    return {name: score for name, score in scores.items() if name in record.scores}


def rescored(folder: Path, task: Task) -> dict[str, Score]:
    """Rescore the translations kept with a run's record.

    `folder` may be the address of a packed run. Raises UserError if no translations were kept, if
    the task generates no text, or if there are more or fewer translations than references.
    """
    score_lines = getattr(task, "score_lines", None)
    if score_lines is None:
        raise UserError(f"the task of {folder} generates no text, so there is nothing to score")
    hypotheses = read_hypotheses(folder)
    if not hypotheses:
        raise UserError(f"{folder} has no {HYPOTHESES_FILE}")
    new_scores: dict[str, Score] = {}
    for split, lines in hypotheses.items():
        try:
            scores = score_lines(split, lines)
        except UserError as error:
            raise UserError(f"{folder / hypotheses_file(split)}: {error}") from None
        new_scores |= {f"{split}/{name}": score for name, score in scores.items()}
    return new_scores
