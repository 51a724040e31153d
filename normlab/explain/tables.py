"""Decides what a norm has to store: parameters, buffers, and how they grow with the width D."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from normlab.explain.subject import WIDTH, Subject

_WIDER = 2 * WIDTH


@dataclass(frozen=True)
class Table:
    """A tensor of a norm's state: its name, its shape with D for the width, how many numbers."""

    name: str
    shape: str
    numbers: str


def tables(subject: Subject) -> tuple[list[Table], list[Table]]:
    """Return the parameters and the buffers that are saved, as found at two widths."""
    narrow, wide = subject.make(WIDTH), subject.make(_WIDER)
    kept = [
        {name: tensor for name, tensor in norm.named_buffers() if name in norm.state_dict()}
        for norm in (narrow, wide)
    ]
    learned = [dict(norm.named_parameters()) for norm in (narrow, wide)]
    return _tables(learned), _tables(kept)


def _tables(pair: Sequence[Mapping[str, Tensor]]) -> list[Table]:
    narrow, wide = pair
    return [
        Table(name, _shape(table.shape, wide[name].shape), total([table], [wide[name]]))
        for name, table in narrow.items()
    ]


def _shape(narrow: Sequence[int], wide: Sequence[int]) -> str:
    sizes = (_linear(a, b) for a, b in zip(narrow, wide, strict=True))
    return f"[{', '.join(sizes)}]"


def total(narrow: Iterable[Tensor], wide: Iterable[Tensor]) -> str:
    """Return how many numbers some tensors hold, as a D + b."""
    return _linear(sum(t.numel() for t in narrow), sum(t.numel() for t in wide))


def _linear(narrow: int, wide: int) -> str:
    slope = (wide - narrow) // (_WIDER - WIDTH)
    rest = narrow - slope * WIDTH
    parts = [f"{slope} D" if slope > 1 else "D"] if slope else []
    return " + ".join([*parts, str(rest)] if rest or not parts else parts)
