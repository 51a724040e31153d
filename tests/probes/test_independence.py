"""Correlations between tokens, and the tokens that are drawn for them."""

import pytest
import torch

from normlab.probes.independence import correlation_at_positions, drawn, intraclass_correlation


def test_intraclass_correlation_separates_correlated_tokens_from_independent_ones():
    """Tokens that share half their variance have an icc of 1/2, independent ones an icc of 0."""
    generator = torch.Generator().manual_seed(1)
    own, shared = (torch.randn(200, n, 6, generator=generator) for n in (8, 1))
    for scale in (1.0, 40.0):  # of one feature: it has no effect, because features are standardized
        x = (own + shared).double() * torch.tensor([scale, *[1.0] * 5])
        assert float(intraclass_correlation(x)) == pytest.approx(0.5, abs=0.05)
        assert float(intraclass_correlation(own.double())) == pytest.approx(0, abs=0.05)


def test_the_correlation_at_positions_does_not_depend_on_sample_lengths():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(5, 4, 6, generator=generator, dtype=torch.float64)
    every = torch.ones(5, 4, dtype=torch.bool)
    of_positions = intraclass_correlation(x.transpose(0, 1))  # samples and tokens exchanged
    torch.testing.assert_close(correlation_at_positions(x, every), of_positions)
    lengths = torch.randint(3, 21, (4000,), generator=generator)
    real = torch.arange(20) < lengths[:, None]
    own, shared = (torch.randn(n, 20, 6, generator=generator).double() for n in (4000, 1))
    assert float(correlation_at_positions(own, real)) == pytest.approx(0, abs=0.01)
    x = own + shared / shared.std(1)[:, None]
    assert float(correlation_at_positions(x, real)) == pytest.approx(0.5, abs=0.1)
    padded = torch.where(real[..., None], x, 1e6)
    torch.testing.assert_close(
        correlation_at_positions(padded, real), correlation_at_positions(x, real)
    )


def test_drawn_tokens_are_real_and_come_from_samples_with_enough_tokens():
    real = torch.arange(9) < torch.tensor([3, 7, 2, 4])[:, None]
    generator = torch.Generator().manual_seed(1)
    places = drawn(real, 2, 3, generator)
    assert places is not None and (places // 9).tolist() == [[0] * 3, [1] * 3]
    assert real.flatten()[places].all() and len(set(places.flatten().tolist())) == 6
    assert drawn(real, 3, 4, generator) is None
