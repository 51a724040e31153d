"""Padding in the statistics of a norm."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.claims.evidence import Evidence
from normlab.inspect.checks.tools import WIDTH, close, draw_tokens, new_norm, option, piece
from normlab.inspect.explain import PADDED, document
from normlab.inspect.question import question
from normlab.inspect.subject import padding_moves, run, with_padding
from normlab.norms.batch import BatchNorm

FIVE = (1.0, 2.0, 3.0, 4.0, 5.0)


@question("padding.pollutes", of="claim")
def pollutes() -> list[Evidence]:
    """What are the statistics of 1 2 3 4 5 with five zeros of padding included or excluded?"""
    padded = torch.tensor([*FIVE, *[0.0] * len(FIVE)], dtype=torch.float64)
    torchs = nn.BatchNorm1d(1, momentum=1.0).double()
    torchs(padded[:, None])
    assert torchs.running_mean is not None and torchs.running_var is not None
    # The buffer's variance divides by n - 1, the variance used for normalization by n.
    biased = float(torchs.running_var) * (len(padded) - 1) / len(padded)
    ours = {how: _batch_moments(padded, how) for how in ("include", "exclude")}
    move = "five zeros move mean 3 to 1.5 and variance 2 to 3.25"
    left_out = "it is the padding: left out (norm.padding=exclude), mean 3 and variance 2 are back"
    found = (
        (f"nn.BatchNorm1d: {move}", (float(torchs.running_mean), biased), (1.5, 3.25)),
        (f"bn: {move}", ours["include"], (1.5, 3.25)),
        (left_out, ours["exclude"], (3.0, 2.0)),
    )
    return [
        piece(text, f"mean {m:.4g}, variance {v:.4g}", holds=close((m, v), wanted), mean=m, var=v)
        for text, (m, v), wanted in found
    ]


def _batch_moments(padded: Float[Tensor, " P"], padding: str) -> tuple[float, float]:
    """Return batch norm's mean and variance of values whose second half is padding."""
    norm = new_norm("bn", padding=padding)
    valid = (torch.arange(len(padded)) < len(FIVE))[None]
    run(norm, padded[None, :, None].expand(-1, -1, WIDTH), valid)
    assert isinstance(norm, BatchNorm) and norm.seen is not None
    return float(norm.seen.mean.flatten()[0]), float(norm.seen.var.flatten()[0])


@question("padding.spares", of="claim")
def spares() -> list[Evidence]:
    """Does padding change any bit of layer norm's output at real tokens?"""
    norm, x = new_norm("ln"), draw_tokens(8, 12)
    real = torch.ones(8, 12, dtype=torch.bool)
    before = with_padding(norm, x, real).outputs
    after = [with_padding(norm, x, real, columns=n, value=1e3).outputs for n in (1, 12, 48)]
    largest = max(float((each - before).abs().max()) for each in after)
    moves = padding_moves(option("ln"), document(), PADDED)
    changed = f"changes by {largest:g} at most" if largest else "identical"
    share = "ln: 8 to 80 % of padding does not change real tokens"
    whatever = "ln: padding does not change the articles' tensor, whatever its values"
    return [
        piece(share, changed, holds=largest == 0, largest=largest),
        piece(whatever, "changes" if moves else "identical", holds=not moves),
    ]
