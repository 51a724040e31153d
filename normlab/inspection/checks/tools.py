"""What checks share: their inputs, and how a number becomes evidence.

Seeds are fixed and everything is computed in float64, so the results are the same on every machine.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.any_model.movement import percent
from normlab.claims.evidence import CheckFinding
from normlab.config.registry import options
from normlab.inspection.subject import on_table, trained
from normlab.norms.base import Norm
from normlab.norms.make import make_norm

SEED, WIDTH, LENGTH = 1, 64, 12


def piece(statement: str, answer: str, *, holds: bool, **numbers: float) -> CheckFinding:
    """Return an answer as evidence: for the claim if the answer `holds`, against it otherwise."""
    return CheckFinding(statement, answer, "supports" if holds else "contradicts", numbers)


def close(values: Sequence[float], expected: Sequence[float]) -> bool:
    """Return whether all values are within 1e-6 of the expected ones."""
    return all(abs(a - b) < 1e-6 for a, b in zip(values, expected, strict=True))


def changes(share: float) -> bool:
    """Return whether a relative change exceeds float64 rounding."""
    return share > 1e-9


def change_piece(
    statement: str, share: float, *, expected: bool = True, because: str = ""
) -> CheckFinding:
    """Return evidence on whether an output changes, given its relative change, `share`."""
    answer = f"changes by {percent(share)}" if changes(share) else "identical"
    return piece(statement, answer + because, holds=changes(share) == expected, moved=share)


def new_norm(name: str, width: int = WIDTH, **values: Any) -> Norm:
    """Build an option's norm in float64 and training mode."""
    return make_norm(name, width, **values).double().train()


def draw(*shape: int, seed: int = SEED) -> Float[Tensor, "*shape"]:
    """Draw standard normal values."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def in_words(values: Float[Tensor, " n"], digits: int = 2) -> str:
    """Format values, separated by blanks, without a negative zero."""
    return " ".join(f"{round(value, digits) + 0:.{digits}f}" for value in values.tolist())


def in_full(pieces: Sequence[CheckFinding]) -> str:
    """Return the result of a check as one sentence: its findings."""
    return "; ".join(piece.finding for piece in pieces)


def draw_tokens(*shape: int, seed: int = SEED) -> Float[Tensor, "... D"]:
    """Draw normal values; each feature has its own mean and spread, whatever the seed."""
    draw = torch.Generator().manual_seed(seed)
    features = torch.Generator().manual_seed(SEED)
    mean, spread = torch.randn(2, WIDTH, generator=features, dtype=torch.float64)
    values = torch.randn(*shape, WIDTH, generator=draw, dtype=torch.float64)
    return values * (1 + spread.abs()) + 2 * mean


def trained_norm(name: str, **values: Any) -> Norm:
    """Return a norm in eval mode that has seen 60 batches of 32 sequences of 16 tokens."""
    return trained(new_norm(name, **values), *draw_tokens(60, 32, 16, seed=SEED + 1))


def option(name: str) -> Norm:
    """Build an option's norm at the width of the articles' example tensor."""
    return on_table(next(each for each in options("norm") if each.name == name)).make()
