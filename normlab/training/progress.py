"""The progress of a run, and the sums for its next row of metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from normlab.training.divergence import Reading


@dataclass
class Progress:
    """The progress of a run, which is saved in checkpoints.

    `interval` holds sums since the last row. `loss` and `grad_norm` are from the last step that was
    read from the device.
    """

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    train_seconds: float = 0.0
    rows: int = 0
    loss: float | None = None
    grad_norm: float | None = None
    interval: dict[str, float] = field(default_factory=dict)

    def count(self, sums: Mapping[str, float]) -> None:
        """Count a step with its numbers of tokens, positions and padding."""
        self.step += 1
        self.tokens += int(sums["tokens"])
        self._add(steps=1.0, **sums)

    def time(self, seconds: float) -> None:
        """Add the seconds that a step took."""
        self.train_seconds += seconds
        self._add(seconds=seconds)

    def read(self, reading: Reading) -> None:
        """Add the values of a step, which may have been counted before its values are read."""
        self.loss, self.grad_norm = reading.loss, reading.grad_norm
        self._add(loss=reading.loss, penalty=reading.penalty)

    def end_interval(self, *, lr: float) -> dict[str, float | int]:
        """Return the row of metrics since the last row. All counted steps must have been read."""
        since, self.interval = self.interval, {}
        assert self.grad_norm is not None, "a row is logged after its steps have been read"
        row = {
            "step": self.step,
            "tokens": self.tokens,
            "train/loss": since["loss"] / since["steps"],
            "train/grad_norm": self.grad_norm,
            "train/lr": lr,
            "train/padding_share": since["padding"] / since["positions"],
            "time/seconds": self.seconds,
            "train/tokens_per_second": since["tokens"] / since["seconds"],
        }
        if since["penalty"]:  # only some norms have a penalty
            row["train/penalty"] = since["penalty"] / since["steps"]
        return row

    def _add(self, **values: float) -> None:
        for name, value in values.items():
            self.interval[name] = self.interval.get(name, 0) + value
