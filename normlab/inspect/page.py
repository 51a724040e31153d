"""All that `normlab explain` says of a norm: axes, worked example, padding and state."""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from torch import Tensor

from normlab.config import registry
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
    AXES,
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
_BATCH, _POSITION, _FEATURE = (frozenset({axis}) for axis in AXES)


class Saying(NamedTuple):
    """A sentence of a document (D0 to D4): its place, what it says, its words, its axes.

    The documents are Chinese; a sentence is given in English with words to find it by. `note` is
    what to know besides. A sentence about an image counts its pixels as tokens.
    """

    place: str
    says: str
    words: str
    axes: frozenset[str]
    note: str = ""


SAYINGS = (
    Saying(
        "D0, section 2",
        "position (0,0): mean([1,2,3,4,-1,0,1,2])",
        "位置(0,0)的统计",
        _BATCH | _FEATURE,
        "Called batch norm there. The batch norm of the papers averages no features.",
    ),
    Saying(
        "D0, section 1.3",
        "the mean of the word vectors that all samples have at position 1",
        "所有样本在位置1的词向量的均值",
        _BATCH,
        "A mean of vectors is a vector: each feature by itself.",
    ),
    Saying(
        "D0, section 5.2",
        "text [N, L, D]: BN along [N]",
        "沿`[N]`归一化",
        _BATCH,
        "The papers that put BN into a Transformer (PowerNorm, RegularizedBN) pool [N, L].",
    ),
    Saying(
        "D0, section 2",
        "sample 1, token 1: [1,2,3,4], mean and deviation of these four numbers",
        "用这4个数计算",
        _FEATURE,
    ),
    Saying(
        "D0, section 4",
        "instance norm on BERT: 70.1 % MLM, 97.8 % NSP",
        "实例归一化",
        _POSITION,
        "A token then sees the rest of its sentence, as BERT's attention lets it anyway.",
    ),
    Saying(
        "D0, section 6",
        "images [N, C, H, W]: BN along [N, H, W]",
        "沿[N, H, W]",
        _BATCH | _POSITION,
        "Batch norm as in the papers: the pixels of an image are tokens.",
    ),
    Saying(
        "D1, section 3.2",
        "BN has to standardize the features at the same position of different samples",
        "对不同样本的同一位置特征进行标准化",
        _BATCH,
        "One reading of BN. Over all positions no alignment is needed.",
    ),
    Saying(
        "D1, section 3.4",
        "BN statistics shared across time steps",
        "across timestep去shared BN的统计量",
        _BATCH | _POSITION,
        "What the papers do in Transformers; the document calls it clearly wrong.",
    ),
    Saying(
        "D2, section 1",
        "LN: all channels of one sample (of an image, with its pixels)",
        "所有通道 (Channels) 的数据",
        _POSITION | _FEATURE,
        "On a sentence taken whole. Section 4 of the same document normalizes each word.",
    ),
    Saying(
        "D2, section 4",
        "the normalization of one word does not look at the others",
        "每个人(每个 Token)只管自家的事",
        _FEATURE,
    ),
    Saying(
        "D4, part 2.1",
        "first, middle and last words of a sentence normalized as one distribution",
        "句首词、句中词、句尾词",
        _BATCH | _POSITION,
    ),
)


@dataclass(frozen=True)
class State:
    """A tensor of a norm's state: its name, its shape with D for the width, how many numbers."""

    name: str
    shape: str
    numbers: str


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
    worked: Worked | None
    padding: Padding | None
    refused: str
    parameters: list[State]
    buffers: list[State]
    running: bool
    scheduled: bool
    step: int
    incremental: bool
    batch_independent: bool
    documents: list[dict[str, Any]]

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
    """Return the named options once each, or all."""
    there = {option.name: option for option in registry.options("norm")}
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
    if norm.phases and seen is not None and not Sees.of(seen).others:
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
        worked=worked,
        padding=try_(lambda: pad(shown)),
        refused="; ".join(refusals),
        parameters=states(dict(narrow.named_parameters()), dict(wide.named_parameters())),
        buffers=states(saved_buffers(narrow), saved_buffers(wide)),
        running=remembers(norm),
        scheduled=bool(norm.phases),
        step=shown.step,
        incremental=norm.incremental,
        batch_independent=norm.batch_independent,
        documents=[saying._asdict() for saying in SAYINGS if saying.axes == norm.pools],
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
