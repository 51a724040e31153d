"""Which weights of a run are tested, under which names, and where they lie.

    last           of the last step (validate.test=last)
    average        the mean of the last k validations' (validate.average=k)
    best           of the best validation by validate.select_by (validate.test=best)
    best_<score>   of the best validation by a score

One of the first three is what a run is judged by: its scores are called `test/bleu`. With
`validate.best` others are tested beside it, and called `test/best_loss/bleu`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from normlab.records.record import Score
from normlab.train.checkpoint import Checkpoints, load_checkpoint, reading, weights_of
from normlab.train.evaluate import Evaluator, whole

LAST, AVERAGE, BEST = "last", "average", "best"
LOSS = "loss"


@dataclass(frozen=True)
class Weights:
    """Weights by their name, of a step; their running statistics may be in need of estimation."""

    name: str
    step: int
    state: Mapping[str, Tensor]
    recalibrate: bool = False


def judged_by(validate: Mapping[str, Any]) -> str:
    """Return the name of the weights that a run with this `validate` node is judged by."""
    if validate["average"]:
        return AVERAGE
    return str(validate.get("test", BEST))  # runs of before have no such key


def best_by(validate: Mapping[str, Any], headline: str | None) -> list[str]:
    """Return the scores by each of which a run keeps its best weights.

    `headline` is the score that the task is judged by, where it is another than the loss.
    """
    selected = [validate["select_by"]] if judged_by(validate) == BEST or validate["best"] else []
    also = [LOSS, *([headline] if headline else [])] if validate["best"] else []
    return list(dict.fromkeys([*also, *selected]))


def load_weights(
    name: str, validate: Mapping[str, Any], checkpoints: Checkpoints, *, step: int
) -> Weights:
    """Load weights of a run that ended at `step`.

    Raises ValueError naming a file that is missing or damaged, or the names there are.
    """
    if name == AVERAGE:
        count = validate["average"] or 1
        recalibrate = validate["average_statistics"] == "recalibrate"
        return Weights(name, step, checkpoints.average(step, count), recalibrate)
    if name == LAST:
        path = checkpoints.last
        content = load_checkpoint(path)
        with reading(path):
            return Weights(name, int(content["progress"]["step"]), weights_of(content, path))
    path = _best_file(name, validate, checkpoints)
    content = load_checkpoint(path)
    with reading(path):
        return Weights(name, int(content.get("step", step)), weights_of(content, path))


def _best_file(name: str, validate: Mapping[str, Any], checkpoints: Checkpoints) -> Path:
    if name == BEST and "test" not in validate:
        return checkpoints.folder / "best.pt"  # of a run of before
    if name != BEST and not name.startswith(f"{BEST}_"):
        raise ValueError(
            f"no weights {name!r}: there are {LAST}, {AVERAGE}, {BEST} and {BEST}_<score>, such as "
            f"{BEST}_{LOSS}"
        )
    return checkpoints.best(validate["select_by"] if name == BEST else name[len(BEST) + 1 :])


@dataclass(frozen=True)
class WeightScores:
    """The scores of all weights that were tested, and the step of each by its name."""

    scores: dict[str, Score]
    steps: dict[str, int]


def score_weights(
    evaluator: Evaluator,
    model: nn.Module,
    validate: Mapping[str, Any],
    checkpoints: Checkpoints,
    *,
    step: int,
    outputs: Path,
) -> WeightScores:
    """Test the weights that a run of `step` steps is judged by, and those beside them.

    What the former make of each test split is written into the folder `outputs`. Weights of one
    step are scored once. The model is left with some of these weights.
    """
    first = load_weights(judged_by(validate), validate, checkpoints, step=step)
    scores = evaluator.test(model, first.state, recalibrate=first.recalibrate, outputs=outputs)
    steps = {first.name: first.step}
    by_step = {} if first.name == AVERAGE else {first.step: whole(scores)}
    for name in _beside(first.name, validate, evaluator.task.headline):
        other = load_weights(name, validate, checkpoints, step=step)
        if other.step not in by_step:
            found = evaluator.test_briefly(model, other.state, recalibrate=other.recalibrate)
            by_step[other.step] = found
        scores |= renamed(by_step[other.step], name)
        steps[name] = other.step
    return WeightScores(scores, steps)


def renamed(scores: Mapping[str, Score], weights: str) -> dict[str, Score]:
    """Return scores such as `test/bleu` under the name of their weights, `test/best_loss/bleu`."""
    parts = ((path.split("/", 1), score) for path, score in scores.items())
    return {f"{split}/{weights}/{name}": score for (split, name), score in parts}


def _beside(first: str, validate: Mapping[str, Any], headline: str | None) -> list[str]:
    """Return the names of the weights that are tested beside the first."""
    if not validate["best"]:
        return []
    names = [f"{BEST}_{name}" for name in best_by(validate, headline)]
    return [*names, LAST] if first == BEST else names
