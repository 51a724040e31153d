"""All that `normlab explain` says of a norm: axes, worked example, padding, state and cost."""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor

from normlab import registry
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
    keeps_order,
    pooled,
    pooled_cells,
)
from normlab.inspect.documents import Saying, about
from normlab.inspect.subject import (
    HALF_WAY,
    WIDTH,
    Norm,
    Setting,
    on_table,
    remembers,
    running,
    scheduled,
    trained,
)
from normlab.inspect.worked import Kind, Outlier, Padding, Worked, outlier, pad, work

T = TypeVar("T")
_PASSES = {"identity": 0, "standardize": 2, "scale": 1}


@dataclass(frozen=True)
class State:
    """A tensor of a norm's state: its name, its shape with D for the width, how many numbers."""

    name: str
    shape: str
    numbers: str


@dataclass(frozen=True)
class Work:
    """Per token, in units of D: values read, values written, adds or multiply-adds.

    `operations` is None where the formula is not one that can be read off the outputs.
    """

    reads: int
    writes: int
    operations: int | None


@dataclass(frozen=True)
class Cost:
    """The work in training and in eval, and how it comes about."""

    train: Work
    eval: Work
    why: list[str]


@dataclass(frozen=True)
class Page:
    """What there is to know about a norm.

    `pooled` are the cells that share their statistics with the example cell. `narrower` tells
    that these are fewer than the axes say, `changed` are values of the config that had to give way
    to the documents' width of 4. A part that the norm refuses to compute is None, and `refused`
    says why. `scheduled` tells that the norm changes as training goes on, and `step` at which step
    it is shown, 0 for the start.
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
    parameters: list[State]
    buffers: list[State]
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
        return in_order(value)
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def choose(names: Iterable[str] = ()) -> list[registry.Option]:
    """Return the named options once each, or all; ValueError names those there are."""
    there = {option.name: option for option in registry.options("norm")}
    for name in names:
        if name not in there:
            raise ValueError(f"no norm {name!r}: there are {', '.join(there)}")
    return [there[name] for name in dict.fromkeys(names)] or list(there.values())


def explain(option: registry.Option) -> Page:
    """Gather the facts of an option of `configs/norm`."""
    shown = on_table(option)
    norm = shown.make()
    refusals: list[str] = []

    def try_(compute: Callable[[], T]) -> T | None:
        try:
            return compute()
        except (ValueError, RuntimeError) as error:
            if str(error) not in refusals:
                refusals.append(str(error))
            return None

    seen = try_(lambda: dependence(norm))
    if scheduled(norm) and seen is not None and not Sees.of(seen).others:
        shown = dataclasses.replace(shown, step=HALF_WAY)  # it pools nothing at the start
        norm = shown.make()
        seen = try_(lambda: dependence(norm))
    seen_eval = try_(lambda: dependence(trained(norm, distinct(SHAPE))))
    by_axes = {cell: pooled(cell, norm.pools) for cell in cells()}
    found = by_axes if seen is None else pooled_cells(norm, seen)
    worked = try_(lambda: work(norm, found))
    sees_train = None if seen is None else Sees.of(seen)
    sees_eval = None if seen_eval is None else Sees.of(seen_eval)
    narrow, wide = shown.make(), shown.make(2 * WIDTH)
    return Page(
        name=option.name,
        description=option.description,
        target=f"{type(norm).__module__}.{type(norm).__name__}",
        docstring=(inspect.getdoc(type(norm)) or "").split("\nRaises:")[0].strip(),
        forward=(type(norm).forward.__doc__ or "").strip().split("\n")[0],
        settings=shown.settings,
        changed=dict(shown.changed),
        pools=in_order(norm.pools),
        pooled=sorted(found[EXAMPLE]),
        groups=len(groups(found)),
        narrower=found != by_axes,
        sees_train=sees_train,
        sees_eval=sees_eval,
        keeps_order=try_(lambda: keeps_order(norm)),
        worked=worked,
        padding=try_(lambda: pad(shown)),
        outlier=try_(lambda: outlier(norm)),
        refused="; ".join(refusals),
        parameters=states(dict(narrow.named_parameters()), dict(wide.named_parameters())),
        buffers=states(saved_buffers(narrow), saved_buffers(wide)),
        running=remembers(norm),
        scheduled=scheduled(norm),
        step=shown.step,
        incremental=norm.incremental,
        batch_independent=norm.batch_independent,
        cost=_cost(norm, worked, sees_train, sees_eval),
        documents=about(norm.pools),
    )


def saved_buffers(norm: Norm) -> dict[str, Tensor]:
    """Return the buffers that a checkpoint holds."""
    return {name: tensor for name, tensor in norm.named_buffers() if name in norm.state_dict()}


def states(narrow: Mapping[str, Tensor], wide: Mapping[str, Tensor]) -> list[State]:
    """Describe tensors by how they grow between the widths D = 4 and 8."""
    found = []
    for name, table in narrow.items():
        sizes = zip(table.shape, wide[name].shape, strict=True)
        shape = f"[{', '.join(linear(a, b) for a, b in sizes)}]"
        found.append(State(name, shape, linear(table.numel(), wide[name].numel())))
    return found


def linear(narrow: int, wide: int) -> str:
    """Return a size as `a D + b`, from its values at D = 4 and 8."""
    slope = (wide - narrow) // WIDTH
    rest = narrow - slope * WIDTH
    parts = [f"{slope} D" if slope > 1 else "D"] if slope else []
    return " + ".join([*parts, str(rest)] if rest or not parts else parts)


def _cost(
    norm: Norm, worked: Worked | None, train: Sees | None, evaluated: Sees | None
) -> Cost | None:
    if worked is None or train is None or evaluated is None:
        return None
    kept = running(norm)
    return cost(norm.pools, worked.kind, evaluated, rows=None if kept is None else len(kept[0]))


def cost(pools: Set[str], kind: Kind, evaluated: Sees, *, rows: int | None) -> Cost:
    """Return what a norm costs per token, derived from its axes and formula; nothing is measured.

    `rows` are the positions it keeps statistics for, if it does.
    """
    if kind == "identity":
        return Cost(Work(0, 0, 0), Work(0, 0, 0), ["Nothing is computed."])
    if not pools:
        work = Work(1, 1, None)
        return Cost(work, work, ["Every value is read, mapped and written once: no statistics."])
    by_tokens = not pools.isdisjoint({"batch", "position"})
    passes = _PASSES.get(kind, 2)
    work = Work(passes + 1 if by_tokens else 1, 1, None if kind == "other" else passes + 1)
    why = [_STATISTICS.get(kind, _STATISTICS["other"])]
    if by_tokens:
        why.append(
            "The statistics need every token of the pool before the first output, so x is read "
            f"{'once' if passes == 1 else 'twice'} for them and once more for the output."
        )
    else:
        why.append("A token's D values stay available between statistics and output: one read.")
    if not by_tokens or evaluated.earlier or evaluated.later or evaluated.others:
        return Cost(work, work, why)
    if not evaluated.itself_alone:
        why.append("In eval what it kept replaces the pool: x is read once.")
        return Cost(work, Work(1, 1, None), why)
    why.append(
        "In eval the running statistics are constants: mean, variance, weight and bias fold into "
        "one scale and offset per feature, so one multiply-add per value is left."
    )
    one = "An adjacent linear layer can absorb them, and then nothing is left."
    why.append(one if rows == 1 else "They differ by position, so no linear layer can absorb them.")
    return Cost(work, Work(1, 1, 1), why)


_STATISTICS: dict[str, str] = {
    "standardize": "Per value: one add for the mean, one multiply-add for the variance, one to "
    "apply them.",
    "scale": "Per value: one multiply-add for the mean square, one multiply to apply it; no mean.",
    "other": "Its arithmetic is its own; counted are passes for mean, variance and output.",
}


@dataclass(frozen=True)
class Row:
    """A norm in a line: `parameters` and `buffers` are how many numbers, with D for the width."""

    name: str
    description: str
    pools: list[str]
    running: bool
    incremental: bool
    parameters: str
    buffers: str


def overview(options: Sequence[registry.Option]) -> list[Row]:
    """Return a line for each option, from those that pool over nothing to those over all."""
    found = []
    for option in options:
        shown = on_table(option)
        pair = narrow, _ = shown.make(), shown.make(2 * WIDTH)
        learned = [sum(t.numel() for t in norm.parameters()) for norm in pair]
        kept = [sum(t.numel() for t in saved_buffers(norm).values()) for norm in pair]
        found.append(
            Row(
                name=option.name,
                description=option.description,
                pools=in_order(narrow.pools),
                running=remembers(narrow),
                incremental=narrow.incremental,
                parameters=linear(*learned),
                buffers=linear(*kept),
            )
        )
    return sorted(found, key=lambda row: (len(row.pools), row.pools != ["feature"], row.name))
