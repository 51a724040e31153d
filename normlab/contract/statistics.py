"""Checks of what a norm keeps: that it is saved whole, and changed in training alone."""

import copy

import torch
from torch import Tensor, nn

from normlab.contract.subject import (
    STEPS,
    Subject,
    Verdict,
    exempt,
    forward,
    moved,
    ok,
    seeded,
    state,
    step,
    violated,
)
from normlab.norms.base import RunningNorm, batch_statistics, recalibrated

_STOPS = (3, STEPS - 3)


def saved(subject: Subject) -> Verdict:
    """Ask that eval changes nothing, and that a norm goes on from its saved state bit by bit."""
    norm = subject.trained().eval()
    before = state(norm)
    with torch.no_grad():
        seeded(norm, *subject.tokens(STEPS + 1))
    if changed := _differences(before, state(norm)):
        return violated(f"a forward in eval changes {', '.join(changed)}")
    for stop in _STOPS:
        norm, other = subject.trained(stop), subject.new()
        other.load_state_dict(copy.deepcopy(norm.state_dict()))
        for number in range(stop + 1, stop + 4):
            for what, mine, loaded in zip(
                ("output", "gradient"), step(norm, number), step(other, number), strict=True
            ):
                if not torch.equal(mine, loaded):
                    return violated(
                        f"saved after step {stop} and loaded, its {what} at step {number} is "
                        "another: what it keeps must be a buffer (`keep`, `register_buffer`)"
                    )
        if changed := _differences(state(norm), state(other)):
            return violated(f"saved after step {stop} and loaded, {', '.join(changed)} differ")
        x = subject.values(4, 6)
        if not torch.equal(forward(norm.eval(), x), forward(other.eval(), x)):
            return violated(f"saved after step {stop} and loaded, eval gives another output")
    return ok("eval changes nothing; saved and loaded, it goes on bit by bit")


def running(subject: Subject) -> Verdict:
    """Ask of running statistics that they can be looked past, replaced and put back."""
    norm = subject.trained()
    if not isinstance(norm, RunningNorm):
        return exempt("it keeps no running statistics")
    model = nn.Sequential(norm)
    before = state(norm)
    x, stream = subject.tokens(STEPS + 2)
    with batch_statistics(model):
        seeded(norm, x.clone().requires_grad_(), stream)[stream.real(x)].sum().backward()
    if changed := _differences(before, state(norm)):
        return violated(f"with the statistics of a batch in eval it changes {', '.join(changed)}")
    former = [table.clone() for table in norm.running_moments()]
    with recalibrated(model, lambda: norm(x, stream)):
        found = [table.clone() for table in norm.running_moments()]
    if all(torch.equal(a, b) for a, b in zip(former, found, strict=True)):
        return violated(
            "recalibration changes nothing: hand the batch's moments to `self.observe` where "
            "`self.by_batch`, and let `enter` move the tables"
        )
    if changed := _differences(before, state(norm)):
        return violated(f"after recalibration {', '.join(changed)} are not as before")
    if (fixed := norm.eval().fixed_map()) is not None:
        scale, shift = fixed
        if moved(
            forward(norm, x, stream.real(x))[stream.real(x)], (x * scale + shift)[stream.real(x)]
        ):
            return violated("`fixed_map` is not what eval computes")
    return ok("running statistics can be looked past, estimated anew and put back")


def _differences(before: dict[str, Tensor], after: dict[str, Tensor]) -> list[str]:
    return [name for name, value in before.items() if not torch.equal(value, after[name])]
