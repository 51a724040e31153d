"""Counts the steps, tokens and seconds of a run, and computes its rows of metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from normlab.training.divergence import Reading


@dataclass
class Counters:
    """Counts what a run has used so far, and sums the values of its steps. Saved in checkpoints.

    `seconds` is the time since the run started, without interruptions, and `train_seconds` the part
    of it that was spent in steps. `rows` is the number of rows logged. `loss` and `grad_norm` are
    from the last step that was read from the device. `interval` holds sums since the last row.
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
        """Count a step. `sums` are its numbers of tokens, positions and padding positions."""
        self.step += 1
        self.tokens += int(sums["tokens"])
        self._add(steps=1.0, **sums)

    def time(self, seconds: float) -> None:
        """Add the time of a step in seconds."""
        self.train_seconds += seconds
        self._add(seconds=seconds)

    def read(self, reading: Reading) -> None:
        """Add the values of a step. The step itself may have been counted earlier (`count`)."""
        self.loss, self.grad_norm = reading.loss, reading.grad_norm
        self._add(loss=reading.loss, penalty=reading.penalty)

    def end_interval(self, *, lr: float) -> dict[str, float | int]:
        """Return the metrics since the last row, and start a new interval.

        All counted steps must have been read. `lr` is the learning rate of the last step.
        """
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
