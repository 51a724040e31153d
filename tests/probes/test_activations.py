"""Exact cases of attention sinks and of the largest activation."""

import math

import torch
from torch import nn

from normlab.norms.bounded import BoundedMap
from normlab.probes.activations import Activations, describe, describe_attention

CAUSAL = torch.ones(64, 64, dtype=torch.bool).tril()


def sinks(weights, visible=CAUSAL, lengths=(64,)):
    """Return the metrics of an attention with these weights, `[P, S]`, in every sequence."""
    size, count = weights.shape[0], len(lengths)
    query = (weights.clamp(min=1e-30).log() * math.sqrt(size)).expand(count, 1, size, size)
    valid = torch.arange(size) < torch.tensor(lengths)[:, None]
    visible = valid[:, None, None] if visible is None else visible[:size, :size]
    key = torch.eye(size).expand(count, 1, size, size)
    return describe_attention(query, key, visible, valid, threshold=0.99)


def uniform(size):
    return torch.ones(size, size).tril() / torch.arange(1, size + 1)[:, None]


def test_a_sink_is_a_head_that_attends_to_the_first_key():
    first = torch.zeros(64, 64)
    first[:, 0] = 1
    for weights, share in ((torch.eye(64), 0), (first, 1), (uniform(64), 0)):
        found = sinks(weights)
        assert float(found["sink"]) == share and "sink_unmasked" not in found
    # The first key gets 0.31 from the uniform attention of 9 tokens, which are too few.
    assert "sink" not in sinks(uniform(9), lengths=(9,))
    # A quarter of the queries attends only to the first key: 0.25 of all 64, but 1 of the first 16.
    some = torch.eye(64)
    some[:16] = first[:16]
    for lengths, share in (((64,), 0), ((16, 64), 0.5), ((9, 64), 0)):
        assert float(sinks(some, lengths=lengths)["sink"]) == share
    # Queries after the 64th do not count with a causal mask; all queries count without one.
    long = torch.eye(80)
    long[64:, 0] = 1
    long[64:, 64:] = 0
    wide = torch.ones(80, 80, dtype=torch.bool).tril()
    assert float(sinks(long, wide, lengths=(80,))["sink"]) == 0
    long[:20] = long[-1]
    found = sinks(long, None, lengths=(80, 9))
    assert float(found["sink_unmasked"]) == 1 and "sink" not in found


def test_the_largest_real_value_is_located_and_compared_with_the_median():
    x = torch.ones(2, 3, 4)
    x[1, 1, 2], x[0, 2] = -30.0, 500.0
    valid = torch.tensor([[True, True, False], [True, True, True]])
    found = describe(x, valid, threshold=6.0)
    assert [float(found[n]) for n in ("over_median", "feature", "position")] == [30, 2, 1]
    model = nn.Sequential(BoundedMap(4, function="tanh", alpha=1.0, shift=None, affine=True))
    probe = Activations(every=1, threshold=6.0)
    probe.attach(model)
    probe.before_forward(1)
    model(x)
    row = probe.metrics_of(probe.collect())
    assert "over_median/0" in row and not any("position" in name for name in row)
