"""Which weights of a run are kept and tested, and under which names.

    last           of the last step (validate.test=last)
    average        the mean of the last k validations' (validate.average=k)
    best           of the best validation by validate.select_by (validate.test=best)
    best_<score>   of the best validation by a score

A run is judged by one of the first three, whose scores are called `test/bleu`. With
`validate.best` the best weights are tested as well, and called `test/best_loss/bleu`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import to_builtins
from torch import Tensor, nn

from normlab.records.record import Score
from normlab.train.checkpoint import Checkpoints, load_checkpoint, reading, weights_of
from normlab.train.evaluate import Evaluator, whole

LAST, AVERAGE, BEST = "last", "average", "best"
LOSS = "loss"


@dataclass(frozen=True)
class Best:
    """The best validation so far: its step, and its scores by their paths."""

    step: int
    scores: dict[str, Score]


class BestValidations:
    """The best validation by each of `names`, scores without their split, such as `bleu`.

    Of equal validations the first is the best; NaN is worse than any number.
    """

    def __init__(self, names: Sequence[str]):
        self.names = tuple(dict.fromkeys(names))
        self.found: dict[str, Best] = {}

    def see(self, scores: Mapping[str, Score], *, step: int) -> list[str]:
        """Take in a validation; return the names by which it is the best so far.

        Raises ValueError for a name that is no score of the task.
        """
        better = [name for name in self.names if self._is_better(name, scores)]
        self.found |= {name: Best(step, dict(scores)) for name in better}
        return better

    def _is_better(self, name: str, scores: Mapping[str, Score]) -> bool:
        path = f"valid/{name}"
        if path not in scores:
            there = ", ".join(sorted(known.removeprefix("valid/") for known in scores))
            raise ValueError(f"validate.select_by={name} is no score of this task; it has {there}")
        if name not in self.found:
            return True
        now, former = scores[path], self.found[name].scores[path].value
        sign = 1 if now.higher_is_better else -1
        return math.isnan(former) or sign * now.value > sign * former

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return to_builtins(self.found)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.found = {
            name: Best(
                best["step"], {path: Score(**score) for path, score in best["scores"].items()}
            )
            for name, best in state.items()
        }


def check_kept(checkpoints: Checkpoints, best_by: Sequence[str], step: int, average: int) -> None:
    """Raise ValueError where a run resumed at `step`, once validated, lacks weights for its test.

    They are the best by each score of `best_by`, and those of the last `average` validations.
    """
    missing = [path for path in map(checkpoints.best, best_by) if not path.exists()]
    if average and not checkpoints.kept(step):
        missing.append(checkpoints.folder / "step-*.pt")
    if missing:
        raise ValueError(
            f"{missing[0]}: missing, and the test at the end of this run needs it: put it back, or "
            f"remove {checkpoints.last} to train the run again from step 1"
        )


def judged_by(validate: Mapping[str, Any]) -> str:
    """Return the name of the weights that a run with this `validate` node is judged by."""
    return AVERAGE if validate["average"] else str(validate["test"])


def best_by(validate: Mapping[str, Any], headline: str | None) -> list[str]:
    """Return the scores by each of which a run keeps its best weights.

    `headline` is the task's main score, where it is not the loss.
    """
    selected = [validate["select_by"]] if judged_by(validate) == BEST or validate["best"] else []
    also = [LOSS, *([headline] if headline else [])] if validate["best"] else []
    return list(dict.fromkeys([*also, *selected]))


@dataclass(frozen=True)
class Weights:
    """Weights by their name and step; with `recalibrate` their statistics need recalibration."""

    name: str
    step: int
    state: Mapping[str, Tensor]
    recalibrate: bool = False


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
    if name != BEST and not name.startswith(f"{BEST}_"):
        raise ValueError(
            f"no weights {name!r}: there are {LAST}, {AVERAGE}, {BEST} and {BEST}_<score>, such as "
            f"{BEST}_{LOSS}"
        )
    score = validate["select_by"] if name == BEST else name.removeprefix(f"{BEST}_")
    path = checkpoints.best(score)
    content = load_checkpoint(path)
    with reading(path):
        return Weights(name, int(content["step"]), weights_of(content, path))


def score_weights(
    evaluator: Evaluator,
    model: nn.Module,
    validate: Mapping[str, Any],
    checkpoints: Checkpoints,
    *,
    step: int,
    outputs: Path,
) -> tuple[dict[str, Score], dict[str, int]]:
    """Test the weights that a run of `step` steps is judged by, and the best ones.

    Returns their scores, and the step of each by its name. What the judged weights write for each
    test split is kept in the folder `outputs`. Weights of one step are scored once. The model is
    left with some of these weights.
    """
    first = load_weights(judged_by(validate), validate, checkpoints, step=step)
    scores = evaluator.test(model, first.state, recalibrate=first.recalibrate, outputs=outputs)
    steps = {first.name: first.step}
    by_step = {} if first.name == AVERAGE else {first.step: whole(scores)}
    others = []
    if validate["best"]:
        others = [f"{BEST}_{name}" for name in best_by(validate, evaluator.task.headline)]
        others += [LAST] if first.name == BEST else []
    for name in others:
        other = load_weights(name, validate, checkpoints, step=step)
        if other.step not in by_step:
            found = evaluator.test_briefly(model, other.state, recalibrate=other.recalibrate)
            by_step[other.step] = found
        scores |= renamed(by_step[other.step], name)
        steps[name] = other.step
    return scores, steps


def renamed(scores: Mapping[str, Score], weights: str) -> dict[str, Score]:
    """Return scores such as `test/bleu` under the name of their weights, `test/best_loss/bleu`."""
    parts = ((path.split("/", 1), score) for path, score in scores.items())
    return {f"{split}/{weights}/{name}": score for (split, name), score in parts}
