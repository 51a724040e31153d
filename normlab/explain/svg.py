"""Decides the picture: the block as an isometric drawing, a panel a norm, for print and screen.

The corner that is nearest is the first cell. Features run away to the right, samples to the left,
tokens down, so whatever axes are pooled, the pool lies on the three faces that show. Shades differ
in lightness as well as hue: the picture holds in grey, for the colour-blind and on dark pages.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from xml.sax.saxutils import escape

from normlab.explain.block import EXAMPLE, TEXT, Axes, Cell, axes_in_words
from normlab.explain.dependence import SHAPE
from normlab.explain.page import Page
from normlab.explain.words import number, numbers
from normlab.explain.worked import DOCUMENT

Number = float | int
Point = tuple[float, float]

_EDGE = 38.0
_ACROSS = 4  # panels in a row
_WIDTH = 300.0
_HEIGHT = 412.0
_MARGIN = 24.0
_HEAD = 92.0
_CORNER: Point = (84.0, 180.0)  # the nearest of the block, in its panel
_COS, _SIN = sqrt(3) / 2, 0.5
_LETTER = 0.56  # mean width of a letter in a sans-serif face, in its size

_STYLE = """
text { font-family: 'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', sans-serif;
  fill: #1b1f24; }
.page { fill: #ffffff; }
.soft { fill: #57606a; }
.name { font-weight: 700; }
.face { stroke: #8c959f; stroke-width: 1; stroke-linejoin: round; }
.out.top { fill: #ffffff; } .out.right { fill: #f3f5f7; } .out.left { fill: #e6e9ed; }
.in.top { fill: #8cc8f0; } .in.right { fill: #5fb0e6; } .in.left { fill: #4197d3; }
.at.top { fill: #d55e00; } .at.right { fill: #b84f00; } .at.left { fill: #9c4200; }
.in.face, .at.face { stroke: #0b2f4d; stroke-width: 1.4; }
.value { text-anchor: middle; }
.value.faint { fill: #6e7781; }
.value.strong { fill: #06233b; font-weight: 700; }
.value.example { fill: #ffffff; font-weight: 700; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .page { fill: #0d1117; }
  .soft { fill: #9da7b3; }
  .face { stroke: #4b535d; }
  .out.top { fill: #262d36; } .out.right { fill: #1c2229; } .out.left { fill: #151a20; }
  .in.top { fill: #7fc4f2; } .in.right { fill: #4da6e0; } .in.left { fill: #338bc8; }
  .at.top { fill: #e0640a; } .at.right { fill: #c25406; } .at.left { fill: #a44503; }
  .in.face, .at.face { stroke: #04121f; }
  .value.faint { fill: #8b949e; }
  .value.strong { fill: #03131f; }
  .value.example { fill: #ffffff; }
}
"""


@dataclass(frozen=True)
class Label:
    """A text: where it stands, how large, and which end of it that point is."""

    x: Number
    y: Number
    text: str
    size: Number
    anchor: str = "start"
    kind: str = ""

    def box(self) -> tuple[Number, ...]:
        """Return left, top, right and bottom, the width estimated from the letters."""
        width = _LETTER * self.size * len(self.text)
        left = self.x - {"start": 0.0, "middle": width / 2, "end": width}[self.anchor]
        return left, self.y - 0.75 * self.size, left + width, self.y + 0.25 * self.size

    def svg(self) -> str:
        """Return the element."""
        kind = f' class="{self.kind}"' if self.kind else ""
        anchor = "" if self.anchor == "start" else f' text-anchor="{self.anchor}"'
        return (
            f'<text x="{_n(self.x)}" y="{_n(self.y)}" font-size="{_n(self.size)}"{kind}{anchor}>'
            f"{escape(self.text)}</text>"
        )


def picture(pages: Sequence[Page], axes: Axes = TEXT) -> str:
    """Return an SVG with a panel for each norm; the same pages give the same bytes."""
    across = min(len(pages), _ACROSS)
    down = -(-len(pages) // across)
    width = across * _WIDTH + 2 * _MARGIN
    height = _HEAD + down * _HEIGHT + _MARGIN
    names = ", ".join(page.name for page in pages)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(width)} {_n(height)}" '
        f'width="{_n(width)}" height="{_n(height)}" role="img" aria-labelledby="title desc">',
        f'<title id="title">What each norm pools over: {escape(names)}</title>',
        f'<desc id="desc">{escape(" ".join(_spoken(page, axes) for page in pages))}</desc>',
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{_n(width)}" height="{_n(height)}"/>',
        *_head(),
    ]
    for index, page in enumerate(pages):
        left = _MARGIN + index % across * _WIDTH
        top = _HEAD + index // across * _HEIGHT
        parts += [f'<g transform="translate({_n(left)} {_n(top)})">', *_panel(page, axes), "</g>"]
    return "\n".join([*parts, "</svg>", ""])


def _head() -> Iterator[str]:
    """Draw the key."""
    yield Label(_MARGIN, 38, "What is pooled", 20, kind="name").svg()
    keys = (("at", "a value"), ("in", "pooled with it"), ("out", "not pooled"))
    for row, (kind, text) in enumerate(keys):
        x = _MARGIN + (0, 84, 206)[row]
        yield (f'<rect class="face top {kind}" x="{_n(x)}" y="56" width="14" height="14" rx="2"/>')
        yield Label(x + 20, 68, text, 13, kind="soft").svg()


def _panel(page: Page, axes: Axes) -> Iterator[str]:
    for label in labels(page, axes):
        yield label.svg()
    block = _Block(_CORNER, page, axes)
    yield from block.faces()
    yield from block.rulers()


def labels(page: Page, axes: Axes = TEXT) -> list[Label]:
    """Return the texts above and below the block of a norm, in its panel's coordinates."""
    found = [
        Label(0, 20, page.name, 19, kind="name"),
        Label(0, 40, f"pools over {axes_in_words(page.pools, axes)}", 14, kind="soft"),
    ]
    lines = ["every value by itself", "no statistics"]
    if page.pools:
        size = len(page.pooled)
        lines = [f"{page.groups} groups of {size}" if page.groups > 1 else f"all {size} values"]
    if page.pools and page.worked is not None:
        group = page.worked.groups[0]
        lines[0] += f": {numbers(group.values[:8])}{' ...' if size > 8 else ''}"
        lines.append(f"mean {number(group.mean)}, variance {number(group.var)}")
        if page.worked.kind == "scale":
            lines[-1] = f"root mean square {number(sqrt(group.var + group.mean**2))}"
    if page.changed:
        lines.append(f"shown with {', '.join(f'{k}={v}' for k, v in page.changed.items())}")
    for row, text in enumerate(lines):
        found.append(Label(0, 346 + 19 * row, text, 13, kind="" if row == 1 else "soft"))
    return found


@dataclass(frozen=True)
class _Block:
    """The cubes of the block around the nearest corner, `origin`."""

    origin: Point
    page: Page
    axes: Axes = TEXT

    def at(self, sample: Number, token: Number, feature: Number) -> Point:
        """Return where a corner of the lattice is drawn."""
        x, y = self.origin
        return (
            x + _EDGE * _COS * (feature - sample),
            y + _EDGE * (token - _SIN * (feature + sample)),
        )

    def faces(self) -> Iterator[str]:
        """Draw the faces that show, those of the pool last, so that their outline is whole."""
        samples, tokens, features = SHAPE
        there = [
            *(("top", (s, 0, d)) for s in range(samples) for d in range(features)),
            *(("left", (s, t, 0)) for s in range(samples) for t in range(tokens)),
            *(("right", (0, t, d)) for t in range(tokens) for d in range(features)),
        ]
        order = {"out": 0, "in": 1, "at": 2}
        for side, cell in sorted(there, key=lambda face: order[self._kind(face[1])]):
            points = " ".join(f"{_n(x)},{_n(y)}" for x, y in self._corners(side, cell))
            yield f'<polygon class="face {side} {self._kind(cell)}" points="{points}"/>'
        for side, cell in there:
            if side == self._best_side(cell):
                yield self._value(side, cell)

    def _kind(self, cell: Cell) -> str:
        return "at" if cell == EXAMPLE else "in" if cell in self.page.pooled else "out"

    def _best_side(self, cell: Cell) -> str:
        """Return the face that carries the value: each cube that shows has one."""
        sample, token, _ = cell
        return "right" if sample == 0 else "top" if token == 0 else "left"

    def _corners(self, side: str, cell: Cell) -> list[Point]:
        s, t, d = cell
        corners = {
            "top": ((s, 0, d), (s + 1, 0, d), (s + 1, 0, d + 1), (s, 0, d + 1)),
            "left": ((s, t, 0), (s + 1, t, 0), (s + 1, t + 1, 0), (s, t + 1, 0)),
            "right": ((0, t, d), (0, t, d + 1), (0, t + 1, d + 1), (0, t + 1, d)),
        }
        return [self.at(*corner) for corner in corners[side]]

    def _value(self, side: str, cell: Cell) -> str:
        """Write a value on a face, slanted as the face is."""
        corners = self._corners(side, cell)
        x, y = (sum(corner[i] for corner in corners) / 4 for i in (0, 1))
        slant = {
            "right": (_COS, -_SIN, 0.0, 1.0),
            "left": (_COS, _SIN, 0.0, 1.0),
            "top": (_COS, -_SIN, _COS, _SIN),
        }[side]
        matrix = " ".join(_n(part) for part in (*slant, x, y))
        sample, token, feature = cell
        strength = {"out": "faint", "in": "strong", "at": "example"}[self._kind(cell)]
        return (
            f'<text class="value {strength}" font-size="15" transform="matrix({matrix})" '
            f'y="5.3">{DOCUMENT[sample][token][feature]:g}</text>'
        )

    def rulers(self) -> Iterator[str]:
        """Write the axes along the edges."""
        for label in self.ruler_labels():
            yield label.svg()

    def ruler_labels(self) -> Iterator[Label]:
        """Return the numbers of tokens, features and samples, the first of each with its name."""
        samples, tokens, features = SHAPE
        of_sample, of_token, of_feature = self.axes.counted
        for token in range(tokens):
            x, y = self.at(0, token + 0.5, features)
            yield Label(x + 8, y + 4, f"{of_token} {token + 1}", 12, kind="soft")
        for feature in range(features):
            x, y = self.at(0, tokens, feature + 0.5)
            text = f"{of_feature} {feature + 1}" if feature == 0 else str(feature + 1)
            yield Label(x + (8 if feature == 0 else 5), y + 17, text, 12, kind="soft")
        for sample in range(samples):
            x, y = self.at(sample + 0.5, tokens, 0)
            text = f"{of_sample} {sample + 1}" if sample == 0 else str(sample + 1)
            yield Label(x - 6, y + 17, text, 12, anchor="end", kind="soft")


def _spoken(page: Page, axes: Axes) -> str:
    if not page.pools:
        return f"{page.name} pools nothing."
    size, named = (" x ".join(map(str, each)) for each in (SHAPE, axes.counted))
    return (
        f"{page.name} pools over {axes_in_words(page.pools, axes)}: of {size} values ({named}), "
        f"{len(page.pooled)} share a mean and a variance with the first."
    )


def _n(value: Number) -> str:
    """Write a coordinate with at most two decimals, the same on every machine."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
