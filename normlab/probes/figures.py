"""Probes that report figures of many places at once: logged at each look, averaged over the run.

A figure of a site is called `<figure>/<site>`, and `<figure>` alone is the whole model's.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from normlab.probes.base import Probe, StepView

Values = Mapping[str, Float[Tensor, ""]]


def by_site(figure: str, values: Values, whole: Callable[[Tensor], Tensor] = torch.mean) -> Values:
    """Return the figure of the whole model, taken over its sites, and that of each site."""
    if not values:
        return {}
    together = torch.stack(list(values.values()))
    sites = {f"{figure}/{name}": value for name, value in zip(values, together, strict=True)}
    return {figure: whole(together), **sites}


def all_by_site(
    found: Mapping[str, Values], *, largest: Collection[str] = frozenset()
) -> dict[str, Float[Tensor, ""]]:
    """Return `by_site` of every figure that was found, by site; of `largest` the largest."""
    figures = dict.fromkeys(figure for values in found.values() for figure in values)
    result: dict[str, Tensor] = {}
    for figure in figures:
        values = {site: of_site[figure] for site, of_site in found.items()}
        result |= by_site(figure, values, torch.max if figure in largest else torch.mean)
    return result


class FigureProbe(Probe):
    """A probe whose summary is the mean over the run of each figure that it logged.

    Those named in `largest`, and their sites, keep the largest. What is not finite is left out.
    Sums stay on the device.
    """

    def __init__(self, *, every: int, largest: tuple[str, ...] = ()) -> None:
        super().__init__(every=every)
        self._largest = largest
        # Sum, count and maximum of the figures that are taken together, by their names.
        self._kept: dict[tuple[str, ...], Float[Tensor, "3 n"]] = {}

    def take(self, view: StepView, values: Values) -> None:
        """Log figures of a step and add them to those of the run."""
        if not values:
            return
        for name, value in values.items():
            view.log(name, value)
        now = torch.stack([value.detach().double() for value in values.values()])
        names = tuple(values)
        kept = self._kept.get(names)
        if kept is None:
            kept = now.new_tensor([[0.0], [0.0], [-torch.inf]]).repeat(1, len(now))
        sums, counts, peaks = kept.to(now.device)
        finite = now.isfinite()
        self._kept[names] = torch.stack(
            [
                sums + torch.where(finite, now, 0),
                counts + finite,
                torch.maximum(peaks, torch.where(finite, now, -torch.inf)),
            ]
        )

    def summary(self) -> dict[str, float]:
        """Return the figures of the run; one that was never finite is left out."""
        figures = {}
        for names, kept in self._kept.items():
            for name, total, count, peak in zip(names, *kept.tolist(), strict=True):
                if count:
                    largest = name.split("/")[0] in self._largest
                    figures[name] = peak if largest else total / count
        return figures

    def state_dict(self) -> dict[str, Any]:
        """Return names with their sums, counts and maxima, in plain values."""
        return {"figures": [[list(names), kept.tolist()] for names, kept in self._kept.items()]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with the figures of a checkpoint."""
        self._kept = {
            tuple(names): torch.tensor(kept, dtype=torch.float64)
            for names, kept in state["figures"]
        }


class HookedProbe(FigureProbe):
    """A figure probe whose forward hooks fill `seen`, by site, while it is `watching`.

    What they put there is a figure's value by its name. `by_position` makes one input of those that
    a recurrence gives a module one position at a time.
    """

    def __init__(self, *, every: int, largest: tuple[str, ...] = ()) -> None:
        super().__init__(every=every, largest=largest)
        self.watching = False
        self.seen: dict[str, Any] = {}
        self._steps: dict[str, list[tuple[Tensor, Tensor]]] = {}

    def by_position(self, name: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        """Return a hook that keeps what a module is given, for `described`."""

        def look(_: nn.Module, arguments: tuple[Any, ...]) -> None:
            if self.watching:
                x, stream = arguments
                steps = self._steps.setdefault(name, [])
                if stream.start == 0:  # a new batch begins
                    steps.clear()
                steps.append((x.detach(), stream.real(x)))

        return look

    def described(self, x: Float[Tensor, "B P D"], valid: Bool[Tensor, "B P"]) -> Any:
        """Return what `seen` is to have of an input kept by position; a probe that keeps any."""
        raise NotImplementedError

    def figures(self, seen: Mapping[str, Any]) -> Values:
        """Return the figures of what the hooks saw in one step, whole and by site."""
        return all_by_site(seen, largest=self._largest)

    def before_forward(self, step: int) -> None:
        """Begin to look."""
        self.watching = True

    def before_update(self, view: StepView) -> None:
        """Take what was seen."""
        self.watching = False
        for name, steps in self._steps.items():
            values, real = zip(*steps, strict=True)
            self.seen[name] = self.described(torch.cat(values, 1), torch.cat(real, 1))
        self._steps.clear()
        seen, self.seen = self.seen, {}
        self.take(view, self.figures(seen))
