"""What does the norm cost beside layer norm: by itself, and in a whole step of training?

Both sides take turns in one process on one thread, so that what else the machine does meets both.
"""

from statistics import median
from typing import Any

from normlab.bench.norms import EVALUATION, TRAINING, Shape, alone, measure
from normlab.bench.speed import Clock, Steps, start
from normlab.card.finding import Finding
from normlab.card.subject import REFERENCE, Examined
from normlab.config import to_dict
from normlab.train.runtime import Runtime

QUESTION = f"What does it cost beside {REFERENCE}: by itself, and in a step of training?"
COLUMNS = ("", f"{REFERENCE}, ms", "this norm, ms", "ratio")
STEPS = 4
_SIDES = (REFERENCE, "this norm")


def examine(examined: Examined) -> Finding:
    """Time both sides in turns and compare their medians."""
    rounds = examined.sizes.rounds
    configs = [to_dict(examined.config("translation", reference=own)) for own in (True, False)]
    runtime = Runtime.start(device=examined.device, precision="fp32", threads=1)
    shape = Shape(features=configs[0]["model"]["dim"])
    nodes = {side: config["norm"] for side, config in zip(_SIDES, configs, strict=True)}
    report = measure(alone(nodes, shape, runtime), runtime, rounds=rounds, seconds=0.05)
    figures: dict[str, Any] = {"shape": str(shape), "rounds": rounds, "steps": STEPS * rounds}
    for kind, name in ((TRAINING, "alone_training"), (EVALUATION, "alone_evaluation")):
        first, own = (side["milliseconds"]["median"] for side in report["groups"][kind])
        figures[name] = [first, own, report["groups"][kind][1]["ratio_to_first"]]
    contenders = [
        start(side, config, runtime) for side, config in zip(_SIDES, configs, strict=True)
    ]
    figures["step"] = _steps(contenders, Clock(runtime.device), rounds)
    rows = [
        (f"by itself, forward and backward, {shape}", *figures["alone_training"]),
        (f"by itself, evaluation, {shape}", *figures["alone_evaluation"]),
        ("a step of training the translation model", *figures["step"]),
    ]
    by_itself, step = figures["alone_training"][2], figures["step"][2]
    answer = (
        f"by itself {by_itself:.2f} times {REFERENCE} in training and "
        f"{figures['alone_evaluation'][2]:.2f} times in evaluation; a step of training takes "
        f"{step:.2f} times as long"
    )
    cells = {"alone x ln": round(by_itself, 2), "step x ln": round(step, 2)}
    return Finding(QUESTION, answer, figures, COLUMNS, rows, cells)


def _steps(contenders: list[Steps], clock: Clock, rounds: int) -> list[float]:
    """Return milliseconds a step of both sides, and the median ratio, over alternating turns."""
    turns: list[list[float]] = [[], []]
    for turn in range(rounds):
        for side in (0, 1) if turn % 2 == 0 else (1, 0):
            span, _ = contenders[side].take(STEPS, clock)
            turns[side].append(1000 * span.busy / STEPS)
    ratios = [own / first for first, own in zip(*turns, strict=True)]
    return [median(turns[0]), median(turns[1]), median(ratios)]
