"""Where the time of a training step goes, by kind of work.

torch's profiler names operators; an operator belongs to the innermost kind that one of its callers
has, so that a cast inside a norm is the norm's. Times are without those of called operators.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

KINDS: dict[str, tuple[str, ...]] = {
    "loss": ("CrossEntropy",),
    "normalization": ("_norm", "Standardize"),
    "dropout": ("dropout", "random_", "Dropout", "bernoulli"),
    "attention": ("bmm", "softmax", "Softmax", "BmmBackward", "attention", "masked_fill"),
    "optimizer": ("Optimizer.",),
    "products": ("linear", "Linear", "addmm", "aten::mm", "mkldnn"),
    "embedding": ("embedding",),
    "copies and casts": ("copy_", "_to_copy", "contiguous", "clone"),
    "data": ("index_select", "nonzero"),
}
OTHER = "element-wise and other"


def kind_of(name: str) -> str | None:
    """Return the kind of an operator by its name; None leaves it to its caller."""
    for kind, parts in KINDS.items():
        if any(part in name for part in parts):
            return kind
    return None


def profile_steps(step: Callable[[], Any], steps: int) -> dict[str, Any]:
    """Profile some calls of `step`: milliseconds a call by kind, and the costliest operators."""
    on_gpu = torch.cuda.is_available()
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if on_gpu else [])
    with profile(activities=activities) as profiler:
        for _ in range(steps):
            step()
    return summarize(profiler.events() or [], steps, on_gpu=on_gpu)


def summarize(events: Iterable[Any], steps: int, *, on_gpu: bool) -> dict[str, Any]:
    """Add up the events of a profile."""
    kinds: Counter[str] = Counter()
    operators: defaultdict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0])
    for event in events:
        spent = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        kind = _inherited(event)
        kinds[kind] += spent
        entry = operators[kind, event.name]
        entry[0] += spent
        entry[1] += 1
    costly = sorted(operators.items(), key=lambda item: -item[1][0])[:25]
    return {
        "milliseconds_per_step": {
            kind: spent / 1000 / steps for kind, spent in kinds.most_common()
        },
        "operators": [
            {"kind": kind, "name": name, "milliseconds": spent / 1000 / steps, "calls": n / steps}
            for (kind, name), (spent, n) in costly
        ],
    }


def _inherited(event: Any) -> str:
    found = None
    while event is not None:
        # The outermost of the whole-function kinds wins: a softmax in the loss is the loss's.
        kind = kind_of(event.name)
        if kind is not None and (found is None or kind in ("loss", "normalization", "optimizer")):
            found = kind
        event = event.cpu_parent
    return found or OTHER
