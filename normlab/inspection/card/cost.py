"""The question about the time of a training step."""

from statistics import median
from typing import NamedTuple

from normlab.config.run_config import to_dict
from normlab.findings.finding import AnswerTable, Finding
from normlab.findings.question import question
from normlab.inspection.card.examined_norm import REFERENCE, ExaminedNorm
from normlab.training.runtime import Runtime
from normlab.training.speed import StepClock, Steps, start

STEPS_PER_TURN = 4


@question("cost", of="card")
def cost(examined: ExaminedNorm) -> Finding:
    """How long does a training step take compared with ln?

    The two models take turns in one process on one thread, so that other load on the machine slows
    down both. `python scripts/bench norms` times norms outside a model.
    """
    rounds = examined.sizes.rounds
    times = step_times(examined, rounds)
    ratio = median(b / a for a, b in zip(times.reference, times.this_norm, strict=True))
    step = [median(times.reference), median(times.this_norm), ratio]
    return Finding(
        f"a training step takes {ratio:.2f} times as long as with {REFERENCE}",
        {"rounds": rounds, "steps": STEPS_PER_TURN * rounds, "step": step},
        AnswerTable((f"{REFERENCE}, ms", "this norm, ms", "ratio"), [step]),
        board={"step x ln": round(ratio, 2)},
    )


class StepTimes(NamedTuple):
    """The time per step in ms, in each round, with the reference and with the card's norm."""

    reference: list[float]
    this_norm: list[float]


def step_times(examined: ExaminedNorm, rounds: int) -> StepTimes:
    """Time steps with the reference and with the card's norm, which take turns at being first."""
    runtime = Runtime.start(device=examined.device, precision="fp32", threads=1)
    clock, times = StepClock(runtime.device), StepTimes([], [])

    def started(name: str, *, reference: bool) -> Steps:
        config = to_dict(examined.config("translation", reference=reference))
        return start(name, config, runtime)

    sides = [
        (started(REFERENCE, reference=True), times.reference),
        (started("this norm", reference=False), times.this_norm),
    ]
    for turn in range(rounds):
        for training, of_side in sides if turn % 2 == 0 else reversed(sides):
            span, _ = training.take(STEPS_PER_TURN, clock)
            of_side.append(1000 * span.busy / STEPS_PER_TURN)
    return times
