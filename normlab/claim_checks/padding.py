"""Checks of padding in the statistics of a norm."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from normlab.claim_checks.check import (
    ROUNDED_TO_ZERO,
    change_finding,
    check,
    close,
    finding,
)
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
MIXTURE_TOLERANCE = 0.005  # the largest deviation that is written as 0.00


class MeanAndVariance(NamedTuple):
    """A mean, and a variance whose divisor is the number of values."""

    mean: float
    var: float


def torch_moments(values: Sequence[float]) -> MeanAndVariance:
    """Return the moments that `nn.BatchNorm1d` computes for values of one feature."""
    norm = nn.BatchNorm1d(1, momentum=1.0).double()
    norm(torch.tensor(values, dtype=torch.float64)[:, None])
    assert norm.running_mean is not None and norm.running_var is not None
    # The buffer's variance has the divisor n - 1, the one used for normalization has n.
    biased = float(norm.running_var) * (len(values) - 1) / len(values)
    return MeanAndVariance(float(norm.running_mean), biased)


@check("padding.pollutes")
def pollutes() -> list[CheckFinding]:
    """What are the statistics of 1 2 3 4 5 if five zeros of padding are included or excluded?"""
    move = "five zeros change mean 3 to 1.5 and variance 2 to 3.25"
    left_out = "without padding (norm.padding=exclude), mean 3 and variance 2 are back"
    polluted, clean = MeanAndVariance(1.5, 3.25), MeanAndVariance(3.0, 2.0)
    padded = (*FIVE, *[0.0] * len(FIVE))
    cases = (
        ("nn.BatchNorm1d", f"nn.BatchNorm1d: {move}", torch_moments(padded), polluted),
        ("bn", f"bn: {move}", batch_moments(padded, "include"), polluted),
        ("padding left out", left_out, batch_moments(padded, "exclude"), clean),
    )
    return [
        finding(
            name,
            statement,
            f"mean {moments.mean:.4g}, variance {moments.var:.4g}",
            holds=close(moments, expected),
            mean=moments.mean,
            var=moments.var,
        )
        for name, statement, moments, expected in cases
    ]


def batch_moments(values: Sequence[float], padding: str) -> MeanAndVariance:
    """Return the moments that batch norm computes if all values after the first five are padding.

    `padding` is the norm's option: `include` or `exclude`.
    """
    norm = new_norm("bn", padding=padding)
    real = (torch.arange(len(values)) < len(FIVE))[None]
    x = torch.tensor(values, dtype=torch.float64)[None, :, None].expand(-1, -1, WIDTH)
    run(norm, x, real)
    assert isinstance(norm, BatchNorm) and norm.last_batch is not None
    batch = norm.last_batch()
    return MeanAndVariance(float(batch.mean.flatten()[0]), float(batch.var.flatten()[0]))


def largest_change_by_padding(name: str) -> float:
    """Return the largest change of a norm's output at real tokens when padding is appended.

    The padding has values of 1,000, and is 8, 50 or 80 % of the tokens.
    """
    norm, x = new_norm(name), draw_tokens(8, 12)
    real = torch.ones(8, 12, dtype=torch.bool)
    before = with_padding(norm, x, real).outputs
    after = [with_padding(norm, x, real, columns=n, value=1e3).outputs for n in (1, 12, 48)]
    return max(float((each - before).abs().max()) for each in after)


@check("padding.spares")
def spares() -> list[CheckFinding]:
    """Does padding change any bit of layer norm's output at real tokens?"""
    largest = largest_change_by_padding("ln")
    moves = padding_moves(norm_of_example_width("ln"), example_tensor(), LAST_IS_PADDING)
    return [
        finding(
            "ln, shares of padding",
            "ln: padding of 8 to 80 % of the batch does not change real tokens",
            f"changes by {largest:g} at most" if largest else "identical",
            holds=largest == 0,
            largest=largest,
        ),
        finding(
            "ln, values of padding",
            "ln: padding does not change the articles' tensor, whatever its values",
            "changes" if moves else "identical",
            holds=not moves,
        ),
    ]


def padded_batch(*lengths: int) -> tuple[Float[Tensor, "B 5 D"], Bool[Tensor, "B 5"]]:
    """Return random tokens for sentences of these lengths, and the mask of real tokens.

    The sentences are padded with zeros to five tokens.
    """
    real = torch.arange(5)[None] < torch.tensor(lengths)[:, None]
    x = draw_tokens(len(lengths), 5)
    return x.masked_fill(~real[..., None], 0.0), real


def batch_of_three_sentences() -> tuple[Float[Tensor, "B 5 D"], Bool[Tensor, "B 5"]]:
    """Draw tokens for the article's three sentences. The third one, about a fox, is the longest."""
    return padded_batch(*(len(sentence.split()) for sentence in BATCH_OF_THREE))


def largest_value_of_lone_tokens() -> float:
    """Return the largest output for the last two words of the fox sentence, excluding padding.

    Statistics are taken per position, and these words are the only real tokens at their positions.
    """
    x, real = batch_of_three_sentences()
    return float(run(new_norm("bn_position"), x, real)[2, 3:].abs().max())


def change_by_other_sentences(name: str) -> float:
    """Return how much a norm's output for the fox sentence changes if it is alone."""
    x, real = batch_of_three_sentences()
    return relative_change(run(new_norm(name), x, real)[2:], run(new_norm(name), x[2:], real[2:]))


@check("padding.batch_of_three")
def batch_of_three() -> list[CheckFinding]:
    """What does padding do in the article's batch of three sentences?

    Statistics are taken over all tokens (`bn`) or over one position (`bn_position`, as the article
    reads batch norm), with padding included or excluded.
    """
    x, real = batch_of_three_sentences()
    cells, empty = real.numel(), int((~real).sum())
    lonely = largest_value_of_lone_tokens()
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
            f"fox and jumps keep values of up to {lonely:.2f}"
            if lonely > ROUNDED_TO_ZERO
            else "fox and jumps, alone at their positions, become 0",
            holds=lonely > ROUNDED_TO_ZERO,
        ),
        change_finding(
            "ln",
            "ln: padding does not change the fox sentence",
            change_by_other_sentences("ln"),
            expected=False,
        ),
    ]


def change_if_included(name: str, x: Float[Tensor, "B P D"], real: Bool[Tensor, "B P"]) -> float:
    """Return how much a norm's output at real tokens changes if padding is included."""
    counted, left_out = (
        run(new_norm(name, padding=how), x, real) for how in ("include", "exclude")
    )
    return relative_change(counted[real], left_out[real])


class TokenChange(NamedTuple):
    """How much including the padding changes a token, in standard deviations of the output."""

    token: str
    position: int
    change: float


def changes_of_two_sentences() -> list[TokenChange]:
    """Return the change of each real token of the article's two sentences, A B C and X Y.

    A change is the root mean square over features.
    """
    x, real = padded_batch(3, 2)
    counted, left_out = (
        run(new_norm("bn_position", padding=how), x, real) for how in ("include", "exclude")
    )
    changes = (counted - left_out)[real].square().mean(-1).sqrt()
    positions = real.nonzero()[:, 1]
    return list(map(TokenChange, "ABCXY", positions.tolist(), changes.tolist()))


@check("padding.position_3")
def position_3() -> list[CheckFinding]:
    """Does padding change real tokens at position 3 of [A, B, C, PAD, PAD], [X, Y, PAD, PAD, PAD]?

    The article counts positions from 0 here, as its mean (PAD + PAD) / 2 shows, and pools over one
    position.
    """
    tokens = changes_of_two_sentences()
    at_3 = sum(each.position == 3 for each in tokens)
    moved = [each for each in tokens if each.change > ROUNDED_TO_ZERO]
    names = ", ".join(f"{each.token} at position {each.position}" for each in moved)
    most = max(each.change for each in tokens)
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
            f"{at_3} real tokens are there; in this batch padding changes "
            f"{names or 'no token'}, by {most:.1f} standard deviations at most",
            holds=at_3 > 0,
            moved=most,
        ),
    ]


class PaddingMixture(NamedTuple):
    """How including zeros changes the mean and variance of tokens.

    `factors` has the factor of the mean, keyed by the share of zeros. `off` is the largest
    deviation from the mean and variance of a mixture with zeros.
    """

    factors: dict[float, float]
    off: float


def mixtures_with_zeros() -> PaddingMixture:
    """Include 0, 10, 40 or 160 zeros in the statistics of 40 tokens."""
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
    return PaddingMixture(factors, off)


@check("padding.share")
def shares_of_padding() -> list[CheckFinding]:
    """How do mean and variance depend on the share of padding?

    With a share p of zeros, the mean m of a feature becomes (1 - p) m, and its variance v becomes
    (1 - p) v + p (1 - p) m^2.
    """
    factors, off = mixtures_with_zeros()
    listed = ", ".join(f"{factor:.2g} m at {p:.0%}" for p, factor in factors.items())
    return [
        finding(
            "moments",
            "mean and variance change with the share of padding",
            f"the mean m becomes {listed} of padding; the variance is within {off:.2f} of "
            "(1 - p) v + p (1 - p) m^2",
            holds=off < MIXTURE_TOLERANCE,
            off=off,
        )
    ]


def moments_with_zeros(
    tokens: Float[Tensor, "1 P D"], zeros: int
) -> tuple[Float[Tensor, " D"], Float[Tensor, " D"]]:
    """Return the mean and variance that batch norm uses for tokens if zeros are included."""
    number = tokens.shape[1]
    x = torch.cat([tokens, torch.zeros(1, zeros, WIDTH, dtype=torch.float64)], dim=1)
    real = (torch.arange(zeros + number) < number)[None]
    y = run(new_norm("bn", padding="include"), x, real)[real]
    sd = tokens[0].std(0, correction=0) / y.std(0, correction=0)  # the divisor of the norm
    return tokens[0].mean(0) - sd * y.mean(0), sd.square() - 1e-5


def largest_output_at_zeros(name: str, *, learned_shift: bool = False) -> float:
    """Return the largest output of a norm at padded positions, which are filled with zeros.

    Padded positions are normalized like real tokens.
    """
    x, real = padded_batch(3, 2)
    norm = new_norm(name)
    if learned_shift:
        norm.bias.data.copy_(draw_tokens(1)[0])
    return float(run(norm, x, torch.ones_like(real))[~real].abs().max())


@check("padding.zero")
def zero() -> list[CheckFinding]:
    """Are padded positions, which are filled with zeros, still zero after a norm?"""
    cases = (
        ("ln", "ln", largest_output_at_zeros("ln")),
        (
            "ln with a shift",
            "ln with a learned shift",
            largest_output_at_zeros("ln", learned_shift=True),
        ),
        ("bn", "bn", largest_output_at_zeros("bn")),
    )
    return [
        finding(
            name,
            f"{subject}: zeros stay zeros",
            f"they become values of up to {largest:.2f}" if largest else "they stay 0",
            holds=largest == 0,
            largest=largest,
        )
        for name, subject, largest in cases
    ]
