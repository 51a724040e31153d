"""The real tokens of a padded batch, and how to pack them without padding."""

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor


class Tokens:
    """The real tokens of a padded `[B, P]` batch.

    Attributes:
        valid: mask of the real tokens; None if all tokens are real.
        rows: flat indices of the real tokens among all `B P` positions. They are computed when a
            batch is collated, so that packing never waits for a GPU, or else on first use.
        start: position of the first column, which is above 0 only in incremental decoding.
    """

    def __init__(
        self,
        valid: Bool[Tensor, "B P"] | None = None,
        start: int = 0,
        rows: Int[Tensor, "N"] | None = None,
    ) -> None:
        self.valid = valid
        self.start = start
        self._rows = rows

    @property
    def rows(self) -> Int[Tensor, "N"]:
        """The flat indices of the real tokens among all `B P` positions. Requires a mask."""
        assert self.valid is not None
        if self._rows is None:
            self._rows = self.valid.flatten().nonzero().squeeze(1)
        return self._rows

    @classmethod
    def collated(cls, valid: Bool[Tensor, "B P"]) -> "Tokens":
        """Return the tokens of a batch being collated, with `rows` computed unless all are real."""
        tokens = cls(valid)
        return cls() if len(tokens.rows) == valid.numel() else tokens

    def to(self, device: torch.device) -> "Tokens":
        """Return the tokens on a device, without waiting for the copy."""
        if self.valid is None:
            return self
        valid, rows = (each.to(device, non_blocking=True) for each in (self.valid, self.rows))
        return Tokens(valid, self.start, rows)

    def pinned(self) -> "Tokens":
        """Return the tokens in pinned memory, from which a GPU can copy them without waiting."""
        if self.valid is None:
            return self
        return Tokens(self.valid.pin_memory(), self.start, self.rows.pin_memory())

    def real(self, x: Shaped[Tensor, "B P *_"]) -> Bool[Tensor, "B P"]:
        """Return the mask of the real tokens of `x`, which is all true without padding."""
        if self.valid is None:
            return torch.ones((), dtype=torch.bool, device=x.device).expand(x.shape[:2])
        return self.valid

    def known(self, x: Shaped[Tensor, "B P *_"]) -> int | None:
        """Return the number of real tokens, or None if counting them would wait for a GPU."""
        if self.valid is None:
            return x.shape[0] * x.shape[1]
        on_hand = self._rows is not None or (
            self.valid.is_cpu and not torch.compiler.is_compiling()
        )
        return len(self.rows) if on_hand else None

    def sequences(self, x: Shaped[Tensor, "B P *_"]) -> Int[Tensor, "N"]:
        """Return, for each packed token of `x`, the index of its sequence."""
        every = torch.arange(x.shape[0] * x.shape[1], device=x.device)
        return (every if self.valid is None else self.rows) // x.shape[1]

    def pack(self, x: Float[Tensor, "B P D"]) -> Float[Tensor, "N D"]:
        """Return the real tokens of `x`, without padding."""
        flat = x.flatten(0, 1)
        return flat if self.valid is None else flat.index_select(0, self.rows)

    def unpack(self, y: Float[Tensor, "N D"], shape: torch.Size) -> Float[Tensor, "B P D"]:
        """Undo `pack`: return a tensor of this shape, with 0 at padding."""
        if self.valid is None:
            return y.view(shape)
        whole = y.new_zeros(shape[0] * shape[1], shape[2])
        return whole.index_copy(0, self.rows, y).view(shape)

    @property
    def keys(self) -> Bool[Tensor, "B 1 1 P"] | None:
        """The mask of the tokens that attention may attend to, or None for all tokens."""
        return None if self.valid is None else self.valid[:, None, None, :]

    def repeated(self, times: int) -> "Tokens":
        """Return the tokens of a batch with each sequence repeated `times` times in a row."""
        if self.valid is None:
            return self
        rows, length = None, self.valid.shape[1]
        if self._rows is not None:
            copies = torch.arange(times, device=self._rows.device)
            first = self._rows.div(length, rounding_mode="floor") * times
            rows = ((first[:, None] + copies) * length + (self._rows % length)[:, None]).flatten()
        return Tokens(self.valid.repeat_interleave(times, dim=0), self.start, rows)

    def picked(self, sequences: Int[Tensor, "R"]) -> "Tokens":
        """Return the tokens of the sequences with these indices."""
        return self if self.valid is None else Tokens(self.valid[sequences], self.start)


ALL = Tokens()
"""All tokens, for a tensor without padding. This is the default of every norm."""
