"""A small chart of lines as SVG in a page: no library, colours of the page's theme."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markupsafe import Markup

Points = Sequence[tuple[float, float]]
WIDTH, HEIGHT = 560, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 96, 12, 28
_HUES = 6
_APART = 13  # least distance of two names at the ends of lines


def lines(series: Mapping[str, Points], *, across: str, up: str) -> "Markup":
    """Draw a line for each name, which stands at its end; empty without any points.

    `across` and `up` say what the axes are.
    """
    from markupsafe import Markup, escape

    drawn = {name: points for name, points in series.items() if points}
    if not drawn:
        return Markup("")
    xs = [x for points in drawn.values() for x, _ in points]
    ys = [y for points in drawn.values() for _, y in points]
    place = _Place(min(xs), max(xs), min(ys), max(ys))
    parts = [_axis(place, across, up)]
    heights = _apart([place.y(points[-1][1]) for points in drawn.values()])
    for number, ((name, points), height) in enumerate(zip(drawn.items(), heights, strict=True)):
        path = " ".join(f"{place.x(x):.1f},{place.y(y):.1f}" for x, y in points)
        hue = f"var(--hue-{number % _HUES})"
        width = 2.4 if number == 0 else 1.4
        parts.append(
            f'<polyline points="{path}" data-name="{escape(name)}" '
            f'data-points="{json.dumps(points)}" fill="none" stroke="{hue}" '
            f'stroke-width="{width}"/>'
            f'<text x="{WIDTH - _RIGHT + 6}" y="{height + 4:.1f}" fill="{hue}">'
            f"{escape(name)}</text>"
        )
    label = escape(f"{up} over {across}: {', '.join(drawn)}")
    return Markup(
        f'<svg class="lines" role="img" aria-label="{label}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'data-across="{escape(across)}" data-up="{escape(up)}" '
        f'font-size="12" style="max-width:{WIDTH}px">{"".join(parts)}</svg>'
    )


class _Place:
    """Where a value stands in the drawing."""

    def __init__(self, left: float, right: float, low: float, high: float) -> None:
        self.left, self.right, self.low, self.high = left, right, low, high

    def x(self, value: float) -> float:
        share = (value - self.left) / ((self.right - self.left) or 1)
        return _LEFT + share * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        share = (value - self.low) / ((self.high - self.low) or 1)
        return HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)


def _axis(place: _Place, across: str, up: str) -> str:
    from markupsafe import escape

    bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
    marks = [
        f'<text x="{_LEFT - 6}" y="{place.y(value) + 4:.1f}" text-anchor="end" '
        f'fill="var(--quiet)">{value:.3g}</text>'
        for value in (place.low, place.high)
    ]
    marks += [
        f'<text x="{place.x(value):.1f}" y="{bottom + 16}" text-anchor="{anchor}" '
        f'fill="var(--quiet)">{value:g}{text}</text>'
        for value, anchor, text in (
            (place.left, "start", ""),
            (place.right, "end", f" {escape(across)}"),
        )
    ]
    return (
        f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="var(--grid)"/>'
        f'<text x="{_LEFT + 6}" y="{_TOP + 4}" fill="var(--quiet)">{escape(up)}</text>'
        + "".join(marks)
    )


def _apart(heights: Sequence[float]) -> list[float]:
    """Move heights until no two are too near, in their order and within the drawing."""
    found = list(heights)
    order = sorted(range(len(found)), key=found.__getitem__)
    least = -float("inf")
    for place in order:
        found[place] = max(found[place], least)
        least = found[place] + _APART
    most = float(HEIGHT - _APART // 2)
    for place in reversed(order):
        found[place] = min(found[place], most)
        most = found[place] - _APART
    return found
