"""Decides what is said about a norm: every fact of one option, gathered for text, SVG and JSON."""

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from normlab import registry
from normlab.explain.block import AXES, EXAMPLE, Cell, cells, groups, pooled
from normlab.explain.cost import Cost, cost
from normlab.explain.dependence import SHAPE, Sees, dependence, keeps_order, pooled_cells, trained
from normlab.explain.documents import Saying, about
from normlab.explain.outlier import Outlier, outlier
from normlab.explain.padding import Padding, pad
from normlab.explain.subject import HALF_WAY, Setting, docstring, subject
from normlab.explain.tables import Table, tables
from normlab.explain.worked import Worked, work
from normlab.norms.base import Norm, RunningNorm

T = TypeVar("T")


@dataclass(frozen=True)
class Page:
    """What there is to know about a norm.

    `pooled` are the cells that share their statistics with the example cell. `narrower` tells
    that these are fewer than the axes say, `changed` are values of the config that had to give way
    to the documents' width of 4. A part that the norm refuses to compute is None, and
    `refused` says why. `scheduled` tells that the norm changes as training goes on, and `step` at
    which step it is shown, 0 for the start.
    """

    name: str
    description: str
    target: str
    docstring: str
    forward: str
    settings: tuple[Setting, ...]
    changed: dict[str, int]
    pools: list[str]
    pooled: list[Cell]
    groups: int
    narrower: bool
    sees_train: Sees | None
    sees_eval: Sees | None
    keeps_order: dict[str, bool] | None
    worked: Worked | None
    padding: Padding | None
    outlier: Outlier | None
    refused: str
    parameters: list[Table]
    buffers: list[Table]
    running: bool
    scheduled: bool
    step: int
    incremental: bool
    batch_independent: bool
    cost: Cost | None
    documents: list[Saying]

    def plain(self) -> dict[str, Any]:
        """Return the facts as plain values for JSON."""
        return {"shape": list(SHAPE), "example": list(EXAMPLE), **_plain(dataclasses.asdict(self))}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, frozenset):
        return [axis for axis in AXES if axis in value]
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def pages(names: Iterable[str] = ()) -> list[Page]:
    """Explain the named norms, or all of them.

    Raises ValueError naming the options for one that does not exist.
    """
    return [explain(option) for option in choose(names)]


def choose(names: Iterable[str] = ()) -> list[registry.Option]:
    """Return the named options once each, or all; ValueError names those there are."""
    there = {option.name: option for option in registry.options("norm")}
    for name in names:
        if name not in there:
            raise ValueError(f"no norm {name!r}: there are {', '.join(there)}")
    return [there[name] for name in dict.fromkeys(names)] or list(there.values())


def explain(option: registry.Option) -> Page:
    """Gather the facts of an option of `configs/norm`."""
    on_table = subject(option)
    norm = on_table.make()
    refusals: list[str] = []

    def try_(compute: Callable[[], T]) -> T | None:
        try:
            return compute()
        except (ValueError, RuntimeError) as error:
            if str(error) not in refusals:
                refusals.append(str(error))
            return None

    seen = try_(lambda: dependence(norm))
    if norm.phases and seen is not None and not Sees.of(seen).others:
        on_table = dataclasses.replace(on_table, step=HALF_WAY)  # it pools nothing at the start
        norm = on_table.make()
        seen = try_(lambda: dependence(norm))
    seen_eval = try_(lambda: dependence(trained(norm)))
    by_axes = {cell: pooled(cell, norm.pools, SHAPE) for cell in cells(SHAPE)}
    found = by_axes if seen is None else pooled_cells(norm, seen)
    worked = try_(lambda: work(norm, found))
    sees_train = None if seen is None else Sees.of(seen)
    sees_eval = None if seen_eval is None else Sees.of(seen_eval)
    parameters, buffers = tables(on_table)
    return Page(
        name=option.name,
        description=option.description,
        target=f"{type(norm).__module__}.{type(norm).__name__}",
        docstring=docstring(norm),
        forward=(type(norm).forward.__doc__ or "").strip().split("\n")[0],
        settings=on_table.settings,
        changed=dict(on_table.changed),
        pools=[axis for axis in AXES if axis in norm.pools],
        pooled=sorted(found[EXAMPLE]),
        groups=len(groups(found)),
        narrower=found != by_axes,
        sees_train=sees_train,
        sees_eval=sees_eval,
        keeps_order=try_(lambda: keeps_order(norm)),
        worked=worked,
        padding=try_(lambda: pad(on_table)),
        outlier=try_(lambda: outlier(norm)),
        refused="; ".join(refusals),
        parameters=parameters,
        buffers=buffers,
        running=isinstance(norm, RunningNorm),
        scheduled=bool(norm.phases),
        step=on_table.step,
        incremental=norm.incremental,
        batch_independent=norm.batch_independent,
        cost=_cost(norm, worked, sees_train, sees_eval),
        documents=about(norm.pools),
    )


def _cost(
    norm: Norm, worked: Worked | None, train: Sees | None, evaluated: Sees | None
) -> Cost | None:
    if worked is None or train is None or evaluated is None:
        return None
    rows = len(norm.running_moments()[0]) if isinstance(norm, RunningNorm) else None
    return cost(norm.pools, worked.kind, train, evaluated, rows=rows)
