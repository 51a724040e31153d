"""MABN: moving average batch norm (Yan et al. 2020)."""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from normlab.norms.base import during
from normlab.norms.gradient import GradientNorm
from normlab.norms.moments import Moments
from normlab.norms.ramp import Ramp
from normlab.norms.window import Window

Rows = Float[Tensor, "G D"]
_CLIP = 5.0  # the correction of MABN and Unified Norm is clipped to between 1/5 and 5


class WindowEntry(NamedTuple):
    """How a batch, or each of its G ghost batches, enters the windows of the last K batches.

    Attributes:
        next_row: true at the windows' row for this batch.
        is_full: whether moments come from the windows: these are full, and the warm-up has ended.
        outlier: the ghost batches that the windows leave out; None if the norm leaves out none.
        stored: the mean square that is written to the row.
        square: the mean square to divide by.
    """

    next_row: Bool[Tensor, "K 1"]
    is_full: Bool[Tensor, ""]
    outlier: Bool[Tensor, "G 1"] | None
    stored: Rows
    square: Rows


@dataclass(eq=False, repr=False, kw_only=True)
class MovingAverageBatchNorm(GradientNorm):
    """MABN: `weight r x / sqrt(chi^2 + eps) + bias`, with its own gradient.

        training     z = x / sqrt(chi^2 + eps),  y = weight r z + bias:
                     chi^2 is the mean of mean(x^2) over the last `window` batches,
                     r = sqrt((chi^2 + eps) / (running chi^2 + eps)), clipped to 1/5 and 5
        backward     dz = r weight dy,  dz' = dz - psi z,  dx = dz' / sqrt(chi^2 + eps):
                     psi is the mean of mean(dz z) over the last `window` batches
        inference    y = weight x / sqrt(running chi^2 + eps) + bias

    chi^2 and r are constants in the backward pass, and the running chi^2 in r is from before the
    batch. In the warm-up, and until the window is full, chi^2 and psi are the batch's own. r is 1
    until `correction_share` of the run has passed.

    The norm subtracts no mean. Instead, with `center_weights`, the weight rows of the linear layers
    before it are centered (`normlab.models.seq2seq.Layer._center`).

    The division is `SquareNorm.formula` (`square.py`), dz' is `Projection` (`gradient.py`), and
    `training_formula` has all steps in order. Source: the authors' `MABN.py`.
    """

    window: int
    correction_share: float
    correction_steps: int | None
    center_weights: bool = False
    squares: Tensor = field(init=False)
    gradient_moments: Tensor = field(init=False)
    next_row: Bool[Tensor, "K 1"] = field(init=False)  # the row for the next batch
    is_full: Bool[Tensor, ""] = field(init=False)
    last: WindowEntry = field(init=False)  # the entry of the latest batch

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ramps += (Ramp("correction", self.correction_share, self.correction_steps),)
        self.register_buffer("squares", torch.zeros(self.window, self.dim))
        self.register_buffer("gradient_moments", torch.zeros(self.window, self.dim))
        self.register_buffer(
            "next_row", Window(self.squares).next_row(self.updates), persistent=False
        )
        self.register_buffer(
            "is_full", Window(self.squares).is_full(self.updates), persistent=False
        )

    def last_steps(self, total: int | None) -> dict[str, int]:
        warmup, correction = super().last_steps(total).values()
        return {"warmup": warmup, "correction": max(correction, warmup)}

    def training_formula(self, x: Tensor, zero: Tensor, mean_square: Tensor) -> Tensor:
        """Divide by the window's RMS, project psi out of the gradient, and multiply by r."""
        with torch.no_grad():
            entry = self.entry(mean_square.flatten(0, -2))
            r = self.correction(entry).view_as(zero).to(x)
        z = self.formula(x, zero, entry.square.view_as(zero).to(x))
        if torch.is_grad_enabled():
            fixed, share = self.projection_coefficients(entry)
            z = self.project(z, fixed=spread(fixed, zero).to(x), share=spread(share, zero).to(x))
        return self.corrected(z, r)

    def corrected(self, z: Tensor, r: Tensor) -> Tensor:
        """Return `r z`, given each group's correction `r`."""
        return z * r

    def entry(self, newest: Rows) -> WindowEntry:
        """Return the entry of a batch, given its mean square."""
        next_row, is_full = self.next_row, self.is_full
        if during(self, "warmup"):
            is_full = torch.zeros_like(is_full)
        windows = Window(self.squares).with_newest(newest, next_row)
        square = torch.where(is_full, self.average(windows).to(newest), newest)
        if (outlier := self.outliers(windows)) is None:
            return WindowEntry(next_row, is_full, None, newest, square)
        stored = torch.where(outlier, self.running_square, newest)
        return WindowEntry(next_row, is_full, outlier, stored, torch.where(outlier, newest, square))

    def average(self, windows: Float[Tensor, "G K D"]) -> Rows:
        """Return the mean square of each window."""
        return windows.mean(1)

    def outliers(self, windows: Float[Tensor, "G K D"]) -> Bool[Tensor, "G 1"] | None:
        """Return a mask of the ghost batches to leave out, by default None for none."""
        return None

    def correction(self, entry: WindowEntry) -> Rows:
        """Return r, which is 1 for an outlier."""
        if during(self, "correction"):
            return torch.ones_like(entry.square)
        running = self.running_square.to(entry.square)
        r = ((entry.square + self.eps) / (running + self.eps)).sqrt().clamp(1 / _CLIP, _CLIP)
        return r if entry.outlier is None else torch.where(entry.outlier, 1.0, r)

    def update(self, moments: Moments, first: int = 0) -> None:
        self.last = entry = self.entry(self.or_running(moments.count, moments.var))
        self.updates.add_(1)
        advance_window(self)
        self.squares.copy_(torch.where(entry.next_row, entry.stored, self.squares))
        self.running_square.lerp_(self.or_running(moments.count, entry.square), self.momentum)

    def set_extra_state(self, state: Tensor) -> None:
        super().set_extra_state(state)
        advance_window(self)

    def projection_coefficients(self, entry: WindowEntry) -> tuple[Rows, Tensor]:
        """Return `fixed` and `share` such that psi is `fixed + share mean(dz z)`.

        psi is the window's mean if the window was full in the forward pass, and otherwise the
        batch's own mean(dz z).
        """
        return Window(self.gradient_moments).mean_of_others(entry.next_row, entry.is_full)

    def enter_gradient(self, moment: Tensor, counts: Tensor) -> None:
        enters = self.last.next_row & counts
        self.gradient_moments.copy_(torch.where(enters, moment, self.gradient_moments))


def advance_window(norm: MovingAverageBatchNorm) -> None:
    """Update `next_row` and `is_full` for the next batch."""
    window = Window(norm.squares)
    norm.next_row, norm.is_full = window.next_row(norm.updates), window.is_full(norm.updates)


def spread(rows: Float[Tensor, "_ C"], like: Float[Tensor, "*groups D"]) -> Tensor:
    """Return `rows`, one per ghost batch or one for all, in the shape of the batch's moments."""
    groups = like.shape[:-1]
    return rows.expand(groups.numel(), -1).view(*groups, -1)
