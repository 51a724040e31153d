"""A card's question about the time of a training step."""

from statistics import median

from normlab.config.run_config import to_dict
from normlab.findings.finding import AnswerTable, Finding
from normlab.findings.question import question
from normlab.inspection.card.examined_norm import REFERENCE, ExaminedNorm
from normlab.training.runtime import Runtime
from normlab.training.speed import StepClock, start

STEPS_PER_TURN = 4
_SIDES = (REFERENCE, "this norm")


@question("cost", of="card")
def cost(examined: ExaminedNorm) -> Finding:
    """How long does a training step take compared with ln?

    The two models take turns in one process on one thread, so any other load on the machine slows
    down both. `python scripts/bench norms` times norms without a model.
    """
    rounds = examined.sizes.rounds
    reference, this_norm = step_times(examined, rounds)
    ratio = median(mine / first for first, mine in zip(reference, this_norm, strict=True))
    step = [median(reference), median(this_norm), ratio]
    return Finding(
        f"a step of training takes {ratio:.2f} times as long as with {REFERENCE}",
        {"rounds": rounds, "steps": STEPS_PER_TURN * rounds, "step": step},
        AnswerTable((f"{REFERENCE}, ms", "this norm, ms", "ratio"), [step]),
        board={"step x ln": round(ratio, 2)},
    )


def step_times(examined: ExaminedNorm, rounds: int) -> tuple[list[float], list[float]]:
    """Return the milliseconds per step in each round, with the reference and with the norm."""
    configs = [to_dict(examined.config("translation", reference=is_ln)) for is_ln in (True, False)]
    runtime = Runtime.start(device=examined.device, precision="fp32", threads=1)
    sides = [start(side, each, runtime) for side, each in zip(_SIDES, configs, strict=True)]
    clock = StepClock(runtime.device)
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(rounds):
        for side in (0, 1) if turn % 2 == 0 else (1, 0):
            span, _ = sides[side].take(STEPS_PER_TURN, clock)
            times[side].append(1000 * span.busy / STEPS_PER_TURN)
    return times
