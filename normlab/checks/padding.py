"""Decides claims 7 and 8: what padding does to the statistics of batch norm and of layer norm."""

import torch
from torch import nn

from normlab.checks._pieces import new, piece, tokens
from normlab.claims.evidence import Evidence
from normlab.explain.padding import FIVE, pad
from normlab.explain.subject import Subject, run, subject
from normlab.registry import options

_CLAIMED = (1.5, 3.25)
_CLEAN = (3.0, 2.0)


def pollutes() -> list[Evidence]:
    """Take the statistics of 1 2 3 4 5 with five zeros of padding, counted and left out."""
    padded = torch.tensor([*FIVE, *[0.0] * len(FIVE)], dtype=torch.float64)
    torchs = nn.BatchNorm1d(1, momentum=1.0).double()
    torchs(padded[:, None])
    assert torchs.running_mean is not None and torchs.running_var is not None
    # The buffer keeps the variance over n - 1; the batch is normalized by that over n.
    biased = float(torchs.running_var) * (len(padded) - 1) / len(padded)
    ours = {
        treatment.name: (treatment.five.mean, treatment.five.var)
        for treatment in pad(_option("bn")).treatments
        if treatment.five is not None
    }
    counted = {"nn.BatchNorm1d": (float(torchs.running_mean), biased), "bn": ours["include"]}
    return [
        *(
            piece(
                f"{name}: five zeros move mean 3 to 1.5 and variance 2 to 3.25",
                _figures(found),
                holds=_close(found, _CLAIMED),
                mean=found[0],
                var=found[1],
            )
            for name, found in counted.items()
        ),
        piece(
            "it is the padding: left out (norm.padding=exclude), mean 3 and variance 2 are back",
            _figures(ours["exclude"]),
            holds=_close(ours["exclude"], _CLEAN),
            mean=ours["exclude"][0],
            var=ours["exclude"][1],
        ),
    ]


def spares() -> list[Evidence]:
    """Compare layer norm's real tokens at growing padding, bit by bit."""
    x = tokens(8, 12, 64)
    before = run(new("ln", 64), x)
    largest = 0.0
    for extra in (1, 12, 48):
        filler = torch.full((8, extra, 64), 1e3, dtype=torch.float64)
        valid = torch.arange(12 + extra).expand(8, -1) < 12
        after = run(new("ln", 64), torch.cat([x, filler], 1), valid)[:, :12]
        largest = max(largest, float((after - before).abs().max()))
    document = pad(_option("ln")).treatments[0]
    return [
        piece(
            "ln: real tokens are the same beside 8 to 80 % of padding",
            f"they move by {largest:g} at most",
            holds=largest == 0,
            largest=largest,
        ),
        piece(
            "ln: so are those of the documents' tensor, whatever stands at its padding",
            "they move" if document.moves else "none moves",
            holds=not document.moves,
        ),
    ]


def _option(name: str) -> Subject:
    (found,) = [option for option in options("norm") if option.name == name]
    return subject(found)


def _figures(found: tuple[float, float]) -> str:
    return f"mean {found[0]:.4g}, variance {found[1]:.4g}"


def _close(found: tuple[float, float], wanted: tuple[float, float]) -> bool:
    return all(abs(a - b) < 1e-6 for a, b in zip(found, wanted, strict=True))
