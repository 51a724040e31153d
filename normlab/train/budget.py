"""How long a run goes on: until a limit in steps, epochs, target tokens or minutes is reached."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """Limits of a run; None is no limit, and at least one is set.

    A limit in minutes makes the number of steps depend on the machine.
    """

    steps: int | None = None
    epochs: float | None = None
    tokens: int | None = None
    minutes: float | None = None

    def __post_init__(self):
        limits = vars(self)
        if all(limit is None for limit in limits.values()):
            raise ValueError("budget: set at least one of budget.steps, epochs, tokens, minutes")
        for name, limit in limits.items():
            if limit is not None and limit <= 0:
                raise ValueError(f"budget.{name}={limit} must be above 0")

    def spent(self, *, steps: int, epochs: float, tokens: int, seconds: float) -> str | None:
        """Return the name of the limit that is reached, or None."""
        used = {"steps": steps, "epochs": epochs, "tokens": tokens, "minutes": seconds / 60}
        for name, limit in vars(self).items():
            if limit is not None and used[name] >= limit:
                return name
        return None
