"""Norms and attention in numpy, and the findings of checks, for comparisons in tests."""

import math

import numpy as np

from normlab.claim_checks import (
    compute,
)


def numbers(name):
    """Return all numbers in the findings of a check, and whether each supports the claim."""
    findings = compute(name)
    merged = {key: value for piece in findings for key, value in piece.numbers.items()}
    return merged, [piece.standing == "supports" for piece in findings]


def layer_norm(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def attention(query, key):
    logits = query @ key.T / math.sqrt(query.shape[-1])
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return logits, weights / weights.sum(-1, keepdims=True)


def batch_norm(x, axis=0):
    return (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + 1e-5)


def text_of(name):
    """Return the findings of a check as one sentence."""
    return "; ".join(each.finding for each in compute(name))
