"""Finds the role of each axis of a norm's input: `batch`, `position`, both, or `feature`.

An axis is both if rows and positions are flattened into it. The role follows from how the size of
the axis changes with the number of rows and with their length.
"""

from collections.abc import Sequence, Set

from torch import Tensor

from normlab.any_model.batches.example import Example
from normlab.any_model.tracing.functional_norms import OVER_FEATURES, OVER_POSITIONS
from normlab.any_model.tracing.norm_modules import CHANNELS_FIRST, CHANNELS_LAST
from normlab.any_model.tracing.norm_trial import NormCalls, Trial

FEATURE, POSITION, BATCH = (frozenset({axis}) for axis in ("feature", "position", "batch"))
Roles = Sequence[Set[str]]
"""The roles of each axis of a norm's input, in the order of the axes."""


def axis_roles(calls: NormCalls, example: Example, trial: Trial) -> Roles:
    """Return the roles of the axes of a norm's output in its call with all rows."""
    shape = calls.all_rows.output.shape
    axes, batch, position = range(len(shape)), {0}, set[int]()
    if calls.one_row:
        alone, padded = (call.output.shape for call in calls.one_row)
        position = {a for a in axes if alone[a] != padded[a]}
        batch = {a for a in axes if alone[a] != shape[a]} - position
        batch = batch or (position & {0})  # rows and positions are flattened
    elif example.length:
        fits = {a for a in axes if shape[a] == example.length}  # one of these may be the channels
        position = (fits - {_channels(trial)} if len(fits) > 1 else fits) - batch
    if not calls.one_row and shape[0] > example.size and shape[0] % example.size == 0:
        position |= {0}  # rows and positions, such as image patches, are flattened
    position = position or {*axes} - batch - {_channels(trial)}
    roles = {"batch": batch, "position": position}
    by_axis = ({role for role, its_axes in roles.items() if a in its_axes} for a in axes)
    return [role or FEATURE for role in by_axis]


def _channels(trial: Trial) -> int:
    """Return the channel axis: the gain's axis or, if there is no gain, torch's usual one."""
    before = trial.before()
    for gain in filter(lambda gain: gain.ndim == 1 and len(gain), trial.module.parameters()):
        gain.data[0] += 1
        counts = counts_by_axis(trial(trial.x) != before)
        gain.data[0] -= 1
        for axis, count in enumerate(counts):
            if count == 1 and len(gain) == trial.x.shape[axis]:
                return axis
    function = getattr(vars(trial.module).get("function"), "__name__", "")
    last = isinstance(trial.module, CHANNELS_LAST) or function in OVER_FEATURES
    first = isinstance(trial.module, CHANNELS_FIRST) or function in OVER_POSITIONS
    return trial.x.ndim - 1 if last or (trial.x.ndim < 4 and not first) else 1


def counts_by_axis(changed: Tensor) -> list[int]:
    """Return, for each axis, the number of its indices at which an entry changed."""
    sizes = enumerate(changed.shape)
    return [int(changed.movedim(a, 0).reshape(n, -1).any(1).sum()) for a, n in sizes]
