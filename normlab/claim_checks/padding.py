"""Checks of padding in the statistics of a norm."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from normlab.claim_checks.check import change_finding, check, close, finding
from normlab.claim_checks.inputs import (
    WIDTH,
    draw_tokens,
    new_norm,
    norm_of_example_width,
)
from normlab.claims.evidence import CheckFinding
from normlab.findings.relative_change import relative_change
from normlab.inspection.examples.articles import BATCH_OF_THREE, LAST_IS_PADDING, example_tensor
from normlab.inspection.norm.norm_calls import run
from normlab.inspection.norm.padding_effect import padding_moves, with_padding
from normlab.norms.batch import BatchNorm

FIVE = (1.0, 2.0, 3.0, 4.0, 5.0)


@check("padding.pollutes")
def pollutes() -> list[CheckFinding]:
    """What are the statistics of 1 2 3 4 5 if five zeros of padding are included or excluded?"""
    padded = torch.tensor([*FIVE, *[0.0] * len(FIVE)], dtype=torch.float64)
    torchs = nn.BatchNorm1d(1, momentum=1.0).double()
    torchs(padded[:, None])
    assert torchs.running_mean is not None and torchs.running_var is not None
    # The buffer's variance is divided by n - 1, the variance used for normalization by n.
    biased = float(torchs.running_var) * (len(padded) - 1) / len(padded)
    ours = {how: _batch_moments(padded, how) for how in ("include", "exclude")}
    move = "five zeros change mean 3 to 1.5 and variance 2 to 3.25"
    left_out = "without padding (norm.padding=exclude), mean 3 and variance 2 are back"
    cases = (
        (
            "nn.BatchNorm1d",
            f"nn.BatchNorm1d: {move}",
            (float(torchs.running_mean), biased),
            (1.5, 3.25),
        ),
        ("bn", f"bn: {move}", ours["include"], (1.5, 3.25)),
        ("padding left out", left_out, ours["exclude"], (3.0, 2.0)),
    )
    return [
        finding(
            name,
            text,
            f"mean {m:.4g}, variance {v:.4g}",
            holds=close((m, v), expected),
            mean=m,
            var=v,
        )
        for name, text, (m, v), expected in cases
    ]


def _batch_moments(padded: Float[Tensor, " P"], padding: str) -> tuple[float, float]:
    """Return the mean and variance that batch norm computes if the second half is padding."""
    norm = new_norm("bn", padding=padding)
    valid = (torch.arange(len(padded)) < len(FIVE))[None]
    run(norm, padded[None, :, None].expand(-1, -1, WIDTH), valid)
    assert isinstance(norm, BatchNorm) and norm.last_batch is not None
    batch = norm.last_batch()
    return float(batch.mean.flatten()[0]), float(batch.var.flatten()[0])


@check("padding.spares")
def spares() -> list[CheckFinding]:
    """Does padding change any bit of layer norm's output at real tokens?"""
    norm, x = new_norm("ln"), draw_tokens(8, 12)
    real = torch.ones(8, 12, dtype=torch.bool)
    before = with_padding(norm, x, real).outputs
    after = [with_padding(norm, x, real, columns=n, value=1e3).outputs for n in (1, 12, 48)]
    largest = max(float((each - before).abs().max()) for each in after)
    moves = padding_moves(norm_of_example_width("ln"), example_tensor(), LAST_IS_PADDING)
    changed = f"changes by {largest:g} at most" if largest else "identical"
    share = "ln: 8 to 80 % of padding does not change real tokens"
    whatever = "ln: padding does not change the articles' tensor, whatever its values"
    return [
        finding("ln, shares of padding", share, changed, holds=largest == 0, largest=largest),
        finding(
            "ln, values of padding", whatever, "changes" if moves else "identical", holds=not moves
        ),
    ]


def padded_batch(*lengths: int) -> tuple[Float[Tensor, "B 5 D"], Bool[Tensor, "B 5"]]:
    """Draw tokens for sentences of these lengths, padded with zeros to five, and their mask."""
    real = torch.arange(5)[None] < torch.tensor(lengths)[:, None]
    x = draw_tokens(len(lengths), 5)
    return x.masked_fill(~real[..., None], 0.0), real


@check("padding.batch_of_three")
def batch_of_three() -> list[CheckFinding]:
    """What does padding do in the article's batch of three sentences?

    Statistics are taken over all tokens (`bn`) or over one position (`bn_position`, as the article
    reads batch norm), with padding included or excluded.
    """
    x, real = padded_batch(*(len(sentence.split()) for sentence in BATCH_OF_THREE))
    cells, empty = real.numel(), int((~real).sum())
    lonely = float(run(new_norm("bn_position"), x, real)[2, 3:].abs().max())
    ln, alone = run(new_norm("ln"), x, real), run(new_norm("ln"), x[2:], real[2:])
    return [
        finding(
            "the batch",
            "the batch of three sentences has padding",
            f"{empty} of {cells} cells are padding",
            holds=empty > 0,
            cells=float(cells),
            padding=float(empty),
        ),
        change_finding(
            "bn",
            "bn: padding, if it counts, changes the real tokens of that batch",
            change_if_included("bn", x, real),
        ),
        change_finding(
            "bn_position",
            "bn_position, the article's reading: padding, if it counts, changes the real tokens "
            "of that batch",
            change_if_included("bn_position", x, real),
        ),
        finding(
            "bn_position: left out",
            "bn_position: padding does no harm if it is left out",
            "fox and jumps, alone at their positions, become 0"
            if lonely < 1e-6
            else f"fox and jumps keep values of up to {lonely:.2f}",
            holds=lonely > 1e-6,
        ),
        change_finding(
            "ln",
            "ln: padding does not change the fox sentence",
            relative_change(ln[2:], alone),
            expected=False,
        ),
    ]


def change_if_included(name: str, x: Float[Tensor, "B P D"], real: Bool[Tensor, "B P"]) -> float:
    """Return how much a norm's output at real tokens changes if padding is included."""
    counted, left_out = (
        run(new_norm(name, padding=how), x, real) for how in ("include", "exclude")
    )
    return relative_change(counted[real], left_out[real])


@check("padding.position_3")
def position_3() -> list[CheckFinding]:
    """Does padding change real tokens at position 3 of [A, B, C, PAD, PAD], [X, Y, PAD, PAD, PAD]?

    The article counts positions from 0 here, as its mean (PAD + PAD) / 2 shows, and pools over one
    position.
    """
    x, real = padded_batch(3, 2)
    at_3 = int(real[:, 3].sum())
    counted, left_out = (
        run(new_norm("bn_position", padding=how), x, real) for how in ("include", "exclude")
    )
    off = (counted - left_out)[real].square().mean(-1).sqrt()
    places = [(int(row), int(column)) for row, column in real.nonzero()]
    moved = [place for place, by in zip(places, off.tolist(), strict=True) if by > 1e-6]
    names = {(0, 0): "A", (0, 1): "B", (0, 2): "C", (1, 0): "X", (1, 1): "Y"}
    which = ", ".join(f"{names[place]} at position {place[1]}" for place in moved) or "no token"
    return [
        finding(
            "at position",
            "at position 3, counted from 0, both sentences have padding",
            f"{at_3} real tokens are there",
            holds=at_3 == 0,
        ),
        finding(
            "so padding",
            "padding at position 3 changes real tokens",
            f"{at_3} real tokens are there; in this batch padding changes {which}, by "
            f"{max(off.tolist()):.1f} standard deviations at most",
            holds=at_3 > 0,
            moved=max(off.tolist()),
        ),
    ]


@check("padding.share")
def shares_of_padding() -> list[CheckFinding]:
    """How do mean and variance depend on the share of padding?

    With a share p of zeros, the mean m of a feature becomes (1 - p) m, and its variance v becomes
    (1 - p) v + p (1 - p) m^2.
    """
    tokens = draw_tokens(1, 40)
    m, v = tokens.mean((0, 1)), tokens.var((0, 1), correction=0)
    off, factors = 0.0, dict[float, float]()
    for zeros in (0, 10, 40, 160):
        p = zeros / (zeros + 40)
        mean, var = moments_with_zeros(tokens, zeros)
        expected_mean, expected_var = (1 - p) * m, (1 - p) * v + p * (1 - p) * m.square()
        gaps = (mean - expected_mean, var - expected_var)
        off = max(off, *(float(gap.abs().max()) for gap in gaps))
        factors[p] = float(mean @ m / (m @ m))
    listed = ", ".join(f"{factor:.2g} m at {p:.0%}" for p, factor in factors.items())
    return [
        finding(
            "moments",
            "mean and variance change with the share of padding",
            f"the mean m becomes {listed} of padding; the variance is within {off:.2f} of "
            "(1 - p) v + p (1 - p) m^2",
            holds=off < 0.005,
            off=off,
        )
    ]


def moments_with_zeros(
    tokens: Float[Tensor, "1 P D"], zeros: int
) -> tuple[Float[Tensor, " D"], Float[Tensor, " D"]]:
    """Return the mean and variance by which batch norm normalizes tokens if zeros are included."""
    number = tokens.shape[1]
    x = torch.cat([tokens, torch.zeros(1, zeros, WIDTH, dtype=torch.float64)], dim=1)
    real = (torch.arange(zeros + number) < number)[None]
    y = run(new_norm("bn", padding="include"), x, real)[real]
    sd = tokens[0].std(0, correction=0) / y.std(0, correction=0)  # that the norm divided by
    return tokens[0].mean(0) - sd * y.mean(0), sd.square() - 1e-5


@check("padding.zero")
def zero() -> list[CheckFinding]:
    """Are padded positions, which are filled with zeros, still zero after a norm?"""
    x, real = padded_batch(3, 2)
    shift = draw_tokens(1)[0]
    findings = []
    cases = (("ln", "ln", False), ("ln with a shift", "ln", True), ("bn", "bn", False))
    for name, option_name, learned in cases:
        norm = new_norm(option_name, WIDTH)
        if learned:
            norm.bias.data.copy_(shift)
        largest = float(run(norm, x, torch.ones_like(real))[~real].abs().max())
        statement = f"{option_name}{' with a learned shift' if learned else ''}: zeros stay zeros"
        answer = f"they become values of up to {largest:.2f}" if largest else "they stay 0"
        findings.append(finding(name, statement, answer, holds=largest == 0, largest=largest))
    return findings
