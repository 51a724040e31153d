"""Decides how the block is drawn in a terminal: a sheet a sample, heavy lines around the pool.

The lines carry the meaning, so the drawing reads the same without colour and on paper.
"""

import unicodedata
from collections.abc import Sequence, Set
from functools import cache

from normlab.explain.block import Cell, Shape

Piece = tuple[str, str]  # text, and what it is: "", "pooled", "example" or "other"

_CELL = 4
_LEFT = 10
_BETWEEN = 6
_SIDES = ("UP", "RIGHT", "DOWN", "LEFT")
_BOTH = {"HORIZONTAL": ("RIGHT", "LEFT"), "VERTICAL": ("UP", "DOWN")}
_WEIGHTS = {"LIGHT": 1, "HEAVY": 2}
_ASCII = {1: "|", 2: "#"}, {1: "-", 2: "#"}


@cache
def _junctions() -> dict[tuple[int, ...], str]:
    """Return the box-drawing character for each weight (0, 1, 2) up, right, down and left."""
    found = {}
    for code in range(0x2500, 0x254C):
        words = unicodedata.name(chr(code)).removeprefix("BOX DRAWINGS ").split()
        if "DASH" in words:
            continue
        arms: dict[str, int] = {}
        waiting: list[str] = []
        all_over = _WEIGHTS.get(words[0])
        for word in words:
            if word in _WEIGHTS and not all_over:
                arms |= dict.fromkeys(waiting, _WEIGHTS[word])
                waiting = []
            elif word in _BOTH or word in _SIDES:
                waiting += _BOTH.get(word, (word,))
        arms |= dict.fromkeys(waiting, all_over or 0)
        found[tuple(arms.get(side, 0) for side in _SIDES)] = chr(code)
    return found


def draw(
    shape: Shape,
    pool: Set[Cell],
    example: Cell,
    values: Sequence[Sequence[Sequence[float]]],
    *,
    ascii_only: bool = False,
) -> list[list[Piece]]:
    """Return the lines of the drawing, as pieces; at the documents' size it is 60 columns wide."""
    samples, tokens, features = shape
    width = features * (_CELL + 1) + 1
    gap = " " * _BETWEEN
    heads = [f"sample {s + 1}".center(width) for s in range(samples)]
    ruler = " " + "".join(f"{d + 1}".center(_CELL + 1) for d in range(features))
    lines: list[list[Piece]] = [
        [(" " * _LEFT + gap.join(heads), "")],
        [("feature".ljust(_LEFT) + gap.join(ruler for _ in heads), "")],
    ]
    sheets = [
        _Sheet(sample, tokens, features, pool, example, ascii_only=ascii_only)
        for sample in range(samples)
    ]
    for row in range(2 * tokens + 1):
        label = f"token {row // 2 + 1}" if row % 2 else ""
        line: list[Piece] = [(label.ljust(_LEFT), "")]
        for index, sheet in enumerate(sheets):
            line += [(gap, "")] if index else []
            line += sheet.row(row // 2, values) if row % 2 else sheet.rule(row // 2)
        lines.append(line)
    return lines


class _Sheet:
    """One sample: tokens down, features across."""

    def __init__(
        self,
        sample: int,
        tokens: int,
        features: int,
        pool: Set[Cell],
        example: Cell,
        *,
        ascii_only: bool,
    ):
        self.sample, self.tokens, self.features = sample, tokens, features
        self.pool, self.example = pool, example
        self.ascii_only = ascii_only

    def _weight(self, *cells: tuple[int, int]) -> int:
        """Return the weight of the line between some cells: 0 where all are outside."""
        inside = [(t, d) for t, d in cells if 0 <= t < self.tokens and 0 <= d < self.features]
        if not inside:
            return 0
        return 2 if any((self.sample, t, d) in self.pool for t, d in inside) else 1

    def row(self, token: int, values: Sequence[Sequence[Sequence[float]]]) -> list[Piece]:
        """Return the values of a token between upright lines."""
        pieces: list[Piece] = []
        for d in range(self.features + 1):
            weight = self._weight((token, d - 1), (token, d))
            bar = _ASCII[0][weight] if self.ascii_only else _junctions()[weight, 0, weight, 0]
            pieces.append((bar, "pooled" if weight == 2 else "other"))
            if d < self.features:
                pieces.append(self._value((self.sample, token, d), values))
        return pieces

    def _value(self, cell: Cell, values: Sequence[Sequence[Sequence[float]]]) -> Piece:
        number = f"{values[cell[0]][cell[1]][cell[2]]:g}"
        if cell == self.example:
            return f"*{number}".rjust(_CELL - 1) + " ", "example"
        return number.rjust(_CELL - 1) + " ", "pooled" if cell in self.pool else "other"

    def rule(self, token: int) -> list[Piece]:
        """Return the line above a token, or below the last."""
        pieces: list[Piece] = []
        for d in range(self.features + 1):
            right = self._weight((token - 1, d), (token, d))
            arms = (
                self._weight((token - 1, d - 1), (token - 1, d)),
                right,
                self._weight((token, d - 1), (token, d)),
                self._weight((token - 1, d - 1), (token, d - 1)),
            )
            corner = ("#" if 2 in arms else "+") if self.ascii_only else _junctions()[arms]
            pieces.append((corner, "pooled" if 2 in arms else "other"))
            if d < self.features:
                stroke = _ASCII[1][right] if self.ascii_only else _junctions()[0, right, 0, right]
                pieces.append((stroke * _CELL, "pooled" if right == 2 else "other"))
        return pieces
