"""Pools compared with plain formulas: groups, padding, kernels, and batches without tokens."""

from typing import get_args, get_type_hints

import pytest
import torch

from normlab.config.registry import option_names
from normlab.norms.batch import BatchNorm
from normlab.norms.fast import FAST
from normlab.norms.make import make_norm
from normlab.norms.moments import Padding
from normlab.norms.ramp import Clock
from normlab.norms.running import RunningNorm
from normlab.norms.tokens import Tokens

MADE = {name: make_norm(name, 8) for name in option_names("norm")}
POOLED = [name for name, norm in MADE.items() if norm.pools & {"batch", "position"}]
RUNNING = [name for name in POOLED if isinstance(MADE[name], RunningNorm)]
FAMILY = ("bn", "global", "bn_position", "bn_sample")
GHOSTS = {None: [range(7)], 3: [[0, 1, 2], [3, 4, 5], [6]]}
LENGTHS = torch.tensor([6, 3, 2, 5, 6, 4, 5])


def _batch(seed=4):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(7, 6, 8, generator=generator, dtype=torch.float64) * 2 + 1
    return x, torch.arange(6)[None] < LENGTHS[:, None]


def _moments(values, real, padding, dims):
    """Return the mean and variance of `[n, D]` tokens, and the divisor of the variance."""
    counted = values if padding == "include" else values[real]
    mean = counted.mean(dims, keepdim=True)
    count = (len(counted) if padding == "exclude" else len(values)) * (8 if 1 in dims else 1)
    return mean, (counted - mean).square().sum(dims, keepdim=True) / count, count


def _plain(x, valid, groups, *, padding, pools):
    """Return the output at real tokens, and the running statistics after one batch."""
    dims = (0, 1) if "feature" in pools else (0,)
    spans = [range(6)] if "position" in pools else [[position] for position in range(6)]
    y, kept = torch.zeros_like(x), []
    for rows in groups:
        for span in spans:
            at = torch.tensor([*rows])[:, None], torch.tensor([*span])[None]
            values, real = x[at].flatten(0, 1), valid[at].flatten()
            if padding == "include" or real.any():
                mean, var, _ = _moments(values, real, padding, dims)
                few = (len(values) if padding == "include" else int(real.sum())) < 2
                z = (values - mean) / (var + 1e-5).sqrt() * (0.0 if few and len(dims) == 1 else 1.0)
                y[at] = z.view(len(rows), len(span), 8)
    for span in spans:
        values, real = x[:, span].flatten(0, 1).detach(), valid[:, span].flatten()
        mean, var, count = _moments(values, real, padding, dims)
        few = len(dims) == 1 and (len(values) if padding == "include" else int(real.sum())) < 2
        share = 0.0 if few else 0.1
        kept.append((share * mean[0], 1 + share * (var[0] * count / max(count - 1, 1) - 1)))
    return y, *(torch.stack(tables) for tables in zip(*kept, strict=True))


@pytest.mark.parametrize("kernel", [True, False])
@pytest.mark.parametrize("ghost", GHOSTS)
@pytest.mark.parametrize("padding", get_args(Padding))
@pytest.mark.parametrize("option", FAMILY)
def test_batch_norms_match_a_plain_formula_with_and_without_a_kernel(
    option, padding, ghost, kernel, monkeypatch
):
    if not kernel:
        monkeypatch.delitem(FAST, BatchNorm)
    x, valid = _batch()
    rows = {"num_positions": 6} if "position" not in MADE[option].pools else {}
    norm = make_norm(option, 8, padding=padding, ghost=ghost, **rows).double()
    norm.weight.data.copy_(torch.linspace(0.5, 2, 8))
    pull = _batch(5)[0] * valid[..., None]
    learned = (x.requires_grad_(), norm.weight)
    y = norm(x, Tokens(valid))
    of_x, of_weight = torch.autograd.grad((y * pull).sum(), learned)
    found = [y[valid], of_x[valid], of_weight, norm.eval()(x, Tokens(valid))[valid]]
    z, mean, var = _plain(x, valid, GHOSTS[ghost], padding=padding, pools=norm.pools)
    of_x, of_weight = torch.autograd.grad((norm.weight * z * pull).sum(), learned)
    by_row = (x - mean[:, None].transpose(0, 1)) / (var[:, None].transpose(0, 1) + 1e-5).sqrt()
    expected = [(norm.weight * z)[valid], of_x[valid], of_weight, (norm.weight * by_row)[valid]]
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)


def _padding_options(option, kept=lambda way: way not in ("include", "forward")):
    hints = get_type_hints(type(MADE[option]).__init__)
    return [way for way in get_args(hints.get("padding")) if kept(way)]


@pytest.mark.parametrize(
    ("option", "padding"), [(o, way) for o in POOLED for way in _padding_options(o) or [None]]
)
def test_a_nan_in_padding_reaches_neither_real_tokens_nor_running_statistics(option, padding):
    found = []
    for filler in (0.0, float("nan")):
        norm = make_norm(option, 8, **({"padding": padding} if padding else {})).double()
        for seed in (1, 2):
            x, valid = _batch(seed)
            x[~valid] = filler
            norm.zero_grad()
            y = norm(x.requires_grad_(), Tokens(valid))
            (y * y.detach().cos())[valid].sum().backward()
        learned = [parameter.grad for parameter in norm.parameters()]
        found.append([y[valid], x.grad[valid], *learned, *dict(norm.named_buffers()).values()])
    torch.testing.assert_close(found[1], found[0])
    assert all(bool(part.isfinite().all()) for part in found[1] if part is not None)


@pytest.mark.parametrize("option", RUNNING)
def test_a_batch_without_real_tokens_leaves_the_statistics_unchanged(option, monkeypatch):
    """The norm refuses the batch, or ignores it if only the device knows the number of tokens."""
    windows = {"window": 2} if option in ("mabn", "un") else {}
    norm = make_norm(option, 8, **windows).double()
    norm.begin_step(Clock(9, 9))  # past each warm-up
    for seed in (1, 2, 3):
        x, valid = _batch(seed)
        (norm(x.requires_grad_(), Tokens(valid)) ** 2)[valid].sum().backward()
    before = _copied_tables(norm)
    empty = Tokens(torch.zeros_like(valid))
    if "position" in norm.pools:
        with pytest.raises(ValueError, match="batch of 0 token"):
            norm(x, empty)
    monkeypatch.setattr(Tokens, "known", lambda self, x: None)
    norm(x, empty).sum().backward()
    torch.testing.assert_close(_copied_tables(norm), before, rtol=0, atol=0)


def _copied_tables(norm):
    """Return copies of the tables; of a window, only whether all of its entries are positive.

    Every batch enters the window, even an empty one.
    """
    found = {name: table.clone() for name, table in norm.tables.items()}
    if "squares" in found:
        found["squares"] = (found["squares"] > 0).all()
        if "gradient_moment" in found:  # a running average, which enters this window
            del found["gradient_moments"]
    return found


def _output_and_gradient(norm, x, valid):
    x = x.clone().requires_grad_()
    y = norm(x, Tokens(valid)) * valid[..., None]
    (gradient,) = torch.autograd.grad((y * torch.sin(x.detach())).sum(), x)
    return y.detach(), gradient


@pytest.mark.parametrize("option", ["rbn", "brn", "prepbn", "pn", "pn_v", "mabn", "un"])
def test_ghost_batches_are_normalized_separately_but_share_running_statistics(option):
    x, valid = _batch()
    ghosts, whole = (make_norm(option, 8, ghost=ghost).double() for ghost in (3, None))
    found = _output_and_gradient(ghosts, x, valid)
    for group in map(list, GHOSTS[3]):
        alone = make_norm(option, 8).double()
        expected = _output_and_gradient(alone, x[group], valid[group])
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours[group], theirs, rtol=1e-9, atol=1e-10)
    whole(x, Tokens(valid))
    of_batch = {n: t for n, t in whole.tables.items() if "gradient" not in n}
    torch.testing.assert_close({n: ghosts.tables[n] for n in of_batch}, of_batch)
    for ours, theirs in zip(ghosts.last_batch(), whole.last_batch(), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    ("option", "padding"),
    [(o, way) for o in RUNNING for way in _padding_options(o, bool) if MADE[o].exact_gradient],
)
def test_the_gradient_matches_finite_differences(option, padding):
    torch.manual_seed(1)
    norm = make_norm(option, 3, padding=padding).double()
    x = torch.randn(3, 4, 3, dtype=torch.float64, requires_grad=True)
    valid = torch.arange(4)[None] < torch.tensor([4, 2, 3])[:, None]
    assert torch.autograd.gradcheck(
        lambda x: norm(x, Tokens(valid)) * valid[..., None], x, atol=1e-6, fast_mode=True
    )
