"""All that `normlab explain` shows of a norm: its pool, the worked example, padding and state."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor

from normlab.config.registry import Option
from normlab.inspect.axes import (
    EXAMPLE,
    SHAPE,
    Cell,
    Sees,
    cells,
    dependence,
    distinct,
    groups,
    in_order,
    pooled,
    pooled_cells,
)
from normlab.inspect.subject import (
    HALF_WAY,
    WIDTH,
    Norm,
    Setting,
    on_table,
    remembers,
    trained,
)
from normlab.inspect.worked import Padding, Worked, pad, work

T = TypeVar("T")


@dataclass(frozen=True)
class Page:
    """What there is to know about a norm.

    `pooled` are the cells that share their statistics with the example cell. `narrower` tells
    that these are fewer than the axes say, `changed` are values of the config that had to give way
    to the documents' width of 4. A part that the norm refuses to compute is None, and `refused`
    says why. `scheduled` tells that the norm changes during training, and `step` at which step it
    is shown, 0 for the start. `parameters` and `buffers` are shapes by name, with D for the width.
    """

    name: str
    description: str
    target: str
    docstring: str
    settings: tuple[Setting, ...]
    changed: dict[str, int]
    pools: list[str]
    pooled: list[Cell]
    groups: int
    narrower: bool
    sees_train: Sees | None
    sees_eval: Sees | None
    worked: Worked | None
    padding: Padding | None
    refused: str
    parameters: dict[str, str]
    buffers: dict[str, str]
    running: bool
    scheduled: bool
    step: int
    incremental: bool

    def plain(self) -> dict[str, Any]:
        """Return the facts as plain values for JSON."""
        return {"shape": SHAPE, "example": EXAMPLE, **dataclasses.asdict(self)}


def explain(option: Option) -> Page:
    """Gather the facts of an option of `configs/norm`."""
    shown = on_table(option)
    norm = shown.make()
    refusals: dict[str, None] = {}

    def try_(compute: Callable[[], T]) -> T | None:
        try:
            return compute()
        except (ValueError, RuntimeError) as error:
            refusals[str(error)] = None
            return None

    seen = try_(lambda: dependence(norm))
    if norm.phases and seen is not None and not Sees.of(seen).others:
        shown = dataclasses.replace(shown, step=HALF_WAY)  # it pools nothing at the start
        norm = shown.make()
        seen = try_(lambda: dependence(norm))
    seen_eval = try_(lambda: dependence(trained(norm, distinct(SHAPE))))
    by_axes = {cell: pooled(cell, norm.pools) for cell in cells()}
    found = by_axes if seen is None else pooled_cells(norm, seen)
    worked, padding = try_(lambda: work(norm, found)), try_(lambda: pad(shown))
    narrow, wide = shown.make(), shown.make(2 * WIDTH)
    return Page(
        name=option.name,
        description=option.description,
        target=f"{type(norm).__module__}.{type(norm).__name__}",
        docstring=(inspect.getdoc(type(norm)) or "").split("\nRaises:")[0].strip(),
        settings=shown.settings,
        changed=dict(shown.changed),
        pools=in_order(norm.pools),
        pooled=sorted(found[EXAMPLE]),
        groups=len(groups(found)),
        narrower=found != by_axes,
        sees_train=None if seen is None else Sees.of(seen),
        sees_eval=None if seen_eval is None else Sees.of(seen_eval),
        worked=worked,
        padding=padding,
        refused="; ".join(refusals),
        parameters=_shapes(dict(narrow.named_parameters()), dict(wide.named_parameters())),
        buffers=_shapes(_saved_buffers(narrow), _saved_buffers(wide)),
        running=remembers(norm),
        scheduled=bool(norm.phases),
        step=shown.step,
        incremental=norm.incremental,
    )


def _saved_buffers(norm: Norm) -> dict[str, Tensor]:
    """Return the buffers that a checkpoint holds."""
    return {name: tensor for name, tensor in norm.named_buffers() if name in norm.state_dict()}


def _shapes(narrow: Mapping[str, Tensor], wide: Mapping[str, Tensor]) -> dict[str, str]:
    """Write shapes by how they grow between the widths D = 4 and 8."""
    pairs = {name: zip(x.shape, wide[name].shape, strict=True) for name, x in narrow.items()}
    return {name: f"[{', '.join(_size(*pair) for pair in each)}]" for name, each in pairs.items()}


def _size(narrow: int, wide: int) -> str:
    """Return a size as `a D + b`, from its values at D = 4 and 8."""
    slope = (wide - narrow) // WIDTH
    rest = narrow - slope * WIDTH
    parts = [f"{slope} D" if slope > 1 else "D"] if slope else []
    return " + ".join([*parts, str(rest)] if rest or not parts else parts)


def overview(options: Sequence[Option]) -> list[dict[str, Any]]:
    """Return facts about each option, from norms that pool over nothing to those over all axes.

    `parameters` and `buffers` are how many numbers, with D for the width.
    """
    found: list[dict[str, Any]] = []
    for option in options:
        shown = on_table(option)
        pair = norm, _ = shown.make(), shown.make(2 * WIDTH)
        learned = [sum(t.numel() for t in each.parameters()) for each in pair]
        kept = [sum(t.numel() for t in _saved_buffers(each).values()) for each in pair]
        facts = {"name": option.name, "description": option.description}
        facts |= {"pools": in_order(norm.pools), "running": remembers(norm)}
        facts |= {"incremental": norm.incremental}
        found.append(facts | {"parameters": _size(*learned), "buffers": _size(*kept)})
    return sorted(found, key=lambda row: (len(row["pools"]), row["pools"] != ["feature"]))
