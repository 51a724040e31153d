"""All norms satisfy the contract. For a norm that breaks it, the message says how."""

import re
from functools import partial
from typing import get_args

import pytest
import torch

from normlab.config.registry import option_names
from normlab.inspection.norm.bare_norm import BareNorm
from normlab.inspection.norm.contract import examine
from normlab.inspection.questions import questions
from normlab.norms.base import Norm
from normlab.norms.batch import BatchNorm
from normlab.norms.layer import LayerNorm
from normlab.norms.make import make_norm
from normlab.norms.moments import Axis, widen
from normlab.norms.running import RunningNorm
from normlab.norms.tokens import ALL as REAL

BATCH, POSITION, FEATURE = get_args(Axis)


def root(x, axes):
    return (x.square().mean(axes, keepdim=True) + 1e-5).sqrt()


def by_token(x):
    return x / root(x, -1)


class Right(Norm):
    pools = frozenset({FEATURE})

    def __init__(self, dim):
        super().__init__(dim, scale=True, shift=True)
        self.calls = 0

    def forward(self, x, tokens=REAL):
        wide, weight, bias = widen(x, self.weight, self.bias)
        return (self.map(wide, tokens) * weight + bias).to(x.dtype)

    def map(self, x, tokens):
        return by_token(x)


class Counts(Right):
    def map(self, x, tokens):
        self.calls += self.training
        return by_token(x) * self.calls


def never_updated(dim):
    """Return a batch norm whose running statistics are never updated."""
    norm = make_norm("bn", dim)
    norm.enter = lambda *_: None
    return norm


def places(count, dim):
    return torch.arange(1.0, count + 1).view([-1 if n == dim else 1 for n in range(3)])


def wrong(map_=None, base=Right, **attributes):
    """Return a class of norms that differs from the correct one in these attributes."""
    attributes["__module__"] = __name__
    return type("Wrong", (base,), attributes if map_ is None else {**attributes, "map": map_})


def without_cast(self, x, tokens=REAL):
    return widen(by_token(x))[0] * self.weight + self.bias


def without_widening(self, x, tokens=REAL):
    return ((x - x.mean(-1, keepdim=True)) * self.weight + self.bias).to(x.dtype)


def without_widened_weight(self, x, tokens=REAL):
    return torch.lerp(by_token(widen(x)[0]), self.bias, 1 - self.weight).to(x.dtype)


ALL = frozenset({BATCH, POSITION})
WRONG = {
    "pools over more axes than declared": (
        wrong(lambda self, x, s: x / root(x, (1, 2))),
        "pools",
        rf"declares pools=\{{{FEATURE}}}, but its output also depends on {POSITION}: declare",
    ),
    "pools over fewer axes than declared": (
        wrong(pools=frozenset({FEATURE, BATCH})),
        "pools",
        f"does not depend on {BATCH}",
    ),
    "returns one feature": (
        wrong(lambda self, x, s: x, forward=lambda self, x, s=REAL: x[..., :1]),
        "shape",
    ),
    "changes its input": (wrong(forward=lambda self, x, s=REAL: x.mul_(2)), "shape", "its input"),
    "divides by 0": (wrong(lambda self, x, s: x / x.std(-1, keepdim=True)), "shape", "is 0"),
    "float32": (wrong(forward=without_cast), "precision", r"bfloat16; .*to\(x.dtype\)"),
    "bf16 statistics": (wrong(forward=without_widening), "precision", "widen"),
    "bf16 weights": (wrong(forward=without_widened_weight), "precision", "raises RuntimeError"),
    "padding": (
        wrong(lambda self, x, s: x / root(x, 1), pools=frozenset({POSITION})),
        "padding",
        "in training padding changes the outputs and gradients of real tokens.*tokens.valid",
    ),
    "depends on the batch in eval": (
        wrong(lambda self, x, s: x / root(x, (0, 1)), pools=ALL, batch_independent=True),
        "independent",
        "`batch_independent` is True, but in eval a sequence has a different output alone",
    ),
    "ignores the start position": (
        wrong(lambda self, x, s: by_token(x) * places(x.shape[1], 1)),
        "independent",
        "`incremental` is True.*tokens.start",
    ),
    "needlessly not incremental": (
        wrong(incremental=False),
        "independent",
        "the same output token by token",
    ),
    "detached": (wrong(lambda self, x, s: x / root(x, -1).detach()), "gradient", "exact_gradient"),
    "unused weights": (
        wrong(forward=lambda self, x, s=REAL: by_token(x)),
        "gradient",
        "weight, bias",
    ),
    "counts in Python": (Counts, "saved", "must be in buffers"),
    "never updated": (never_updated, "running", "recalibration changes nothing"),
    "raises": (
        wrong(lambda self, x, s: x / self.scale),
        "gradient",
        r"raises AttributeError: .*scale.* \(test_contract.py:\d+\)",
    ),
}


@pytest.mark.parametrize("option", [*option_names("norm"), Right])
def test_every_norm_satisfies_the_contract(option):
    build = partial(make_norm, option) if isinstance(option, str) else option
    findings = dict(examine(BareNorm(build)))
    assert [*findings] == [each.name for each in questions("norm")]
    assert {name: v.answer for name, v in findings.items() if v.verdict == "broken"} == {}
    assert (findings["running"].verdict == "fine") == isinstance(build(8), RunningNorm)


@pytest.mark.parametrize("case", WRONG)
def test_a_faulty_norm_fails_its_check_with_an_answer_that_says_why(case):
    norm, check, *phrase = WRONG[case]
    verdict = dict(examine(BareNorm(norm)))[check]
    assert verdict.verdict == "broken"
    assert not phrase or re.search(phrase[0], verdict.answer), verdict.answer


class TrainsOnly(type(make_norm("bn", 8))):
    """Batch norm with a different formula in training, which evaluation does not use."""

    def forward(self, x, tokens=REAL):
        if self.training:
            return 2 * super().forward(x, tokens)
        return super().forward(x, tokens)


class IgnoresFormula(type(make_norm("bn", 8))):
    """Batch norm that normalizes in its own forward pass and never calls its formula."""

    def forward(self, x, tokens=REAL):
        if not self.training:
            return super().forward(x, tokens)
        kernel = make_norm("bn", self.dim, momentum=self.momentum, unbiased=self.unbiased)
        kernel.to(x).train()
        kernel.load_state_dict(self.state_dict())
        y = kernel(x, tokens)
        self.load_state_dict(kernel.state_dict())
        return y


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (TrainsOnly, "different output in eval than in training"),
        (IgnoresFormula, "the output in training; use it"),
    ],
)
def test_a_formula_that_only_training_or_only_evaluation_uses_is_detected(kind, message):
    def build(dim):
        norm = make_norm("bn", dim)
        norm.__class__ = kind
        return norm

    findings = dict(examine(BareNorm(build)))
    assert findings["formula"].verdict == "broken" and message in findings["formula"].answer


@pytest.mark.parametrize("option", ["pn", "mabn", "un", "brn", "prepbn"])
def test_a_training_formula_that_contradicts_the_formula_is_detected(option, monkeypatch):
    kind = type(make_norm(option, 8))
    formula = kind.training_formula
    monkeypatch.setattr(kind, "training_formula", lambda self, *given: 2 * formula(self, *given))
    findings = dict(examine(BareNorm(lambda dim: make_norm(option, dim))))
    assert findings["formula"].verdict == "broken" and "contradict" in findings["formula"].answer


@pytest.mark.parametrize(("option", "kind"), [("bn", BatchNorm), ("ln", LayerNorm)])
def test_a_kernel_that_contradicts_the_formula_is_reported_and_not_used(option, kind, monkeypatch):
    formula = kind.formula
    monkeypatch.setattr(kind, "formula", lambda self, *given: 2 * formula(self, *given))
    findings = dict(examine(BareNorm(lambda dim: make_norm(option, dim))))
    assert (
        findings["formula"].verdict == "fine"
        and "computes a different one and is not used" in findings["formula"].answer
    )
