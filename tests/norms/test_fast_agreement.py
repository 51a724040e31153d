"""A kernel runs only while its norm's formula is unchanged, in every mode and subclass."""

import copy
import importlib.util
from pathlib import Path

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from normlab.norms import fast
from normlab.norms.batch import BatchNorm
from normlab.norms.fast import FAST
from normlab.norms.make import make_norm
from tests.norms.kernels import OPTIONS

# The line of each formula that is edited, and the new line
EDITS = {
    "bn": ("return (x - mean) * (var + self.eps).rsqrt()", "return 2 * (x - mean)"),
    "ln": ("return (x - mean) * inverse", "return 2 * (x - mean)"),
    "rms": ("return x / (", "return 2 + 0 / ("),
}


def edited(option, change, tmp_path):
    """Return the class from a copy of its file in which one line is changed."""
    path = Path(importlib.util.find_spec(OPTIONS[option].__module__).origin)
    text = path.read_text(encoding="utf-8")
    line = EDITS[option][0]
    assert text.count(line) >= 1
    copied = tmp_path / path.name
    copied.write_text(text.replace(line, change, 1), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(f"edited_{option}", copied)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, OPTIONS[option].__name__)


def in_both_modes(norm, x):
    return norm(x), norm.eval()(x)


@pytest.mark.parametrize("option", OPTIONS)
def test_an_edited_formula_runs_instead_of_the_kernel_in_training_and_eval(
    option, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(fast, "FAST", dict(FAST))
    kind = edited(option, EDITS[option][1], tmp_path)
    assert kind in fast.FAST  # the edited file still registers its kernel
    norm, x = make_norm(option, 8), torch.randn(4, 6, 8) + 3
    norm.__class__ = kind
    with torch.no_grad():
        expected = {
            "bn": (2 * (x - x.mean((0, 1))), 2 * (x - 0.1 * x.mean((0, 1)))),
            "ln": (2 * (x - x.mean(-1, keepdim=True)),) * 2,
            "rms": (torch.full_like(x, 2.0),) * 2,
        }
        torch.testing.assert_close(in_both_modes(norm, x), expected[option])
    norm.eps *= 2  # with other settings they are compared again, but not reported again
    in_both_modes(norm, x)
    said = [line for line in capsys.readouterr().err.splitlines() if "kernel" in line]
    assert said == [
        f"the kernel of {kind.__name__} disagrees with its formula, so the formula runs"
    ]


@pytest.mark.parametrize("option", OPTIONS)
def test_a_monkeypatched_formula_runs_until_it_is_restored(option, monkeypatch):
    kind, x = OPTIONS[option], torch.randn(4, 6, 8)
    norm = make_norm(option, 8)
    plain, other = in_both_modes(copy.deepcopy(norm), x), copy.deepcopy(norm)
    with monkeypatch.context() as patch:
        patch.setattr(kind, "formula", lambda self, x, *moments: 0 * x + 7)
        assert all((y == 7).all() for y in in_both_modes(other, x))
    assert fast.agrees(norm)
    assert all(map(torch.equal, plain, in_both_modes(norm, x)))


def test_a_formula_set_on_a_single_instance_runs():
    norm = make_norm("bn", 8)
    norm.formula = lambda x, mean, var: 0 * x + 7
    assert all((y == 7).all() for y in in_both_modes(norm, torch.randn(4, 6, 8)))


@pytest.mark.parametrize(
    "change",
    [
        "return (x - mean.detach()) * (var + self.eps).rsqrt()",  # changes only the gradient
        "return (x - mean) * (var.sqrt() + self.eps).reciprocal()",
        "return ((x - mean) * (var + self.eps).rsqrt()).clamp(-5, 5)",
        "return (x - mean) * (var + (2 if self.clock.step > 500 else 1) * self.eps).rsqrt()",
        "return (x - mean) * (var + (2 if self.clock.step < 500 else 1) * self.eps).rsqrt()",
        "return (x - mean) * (var + (2 if self.training else 1) * self.eps).rsqrt()",
        "return (x - mean) * (var + self.eps).rsqrt() * (1 + 0.1 * torch.randn_like(x))",
        "raise KeyError",
    ],
)
def test_even_a_small_edit_of_batch_norms_formula_disables_its_kernel(
    change, tmp_path, monkeypatch
):
    monkeypatch.setattr(fast, "FAST", dict(FAST))
    norm = make_norm("bn", 8)
    norm.__class__ = edited("bn", change, tmp_path)
    assert not fast.agrees(norm)


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("dim", [64, 512])
def test_a_clamp_in_the_formula_disables_the_kernel_only_if_values_reach_its_bound(
    option, dim, monkeypatch
):
    kind, plain = OPTIONS[option], OPTIONS[option].formula
    for bound, same in ((5, False), (1000, True)):

        def clamped(self, *given, bound=bound):
            return plain(self, *given).clamp(-bound, bound)

        monkeypatch.setattr(kind, "formula", clamped)
        assert fast.agrees(make_norm(option, dim)) is same


def test_an_edited_update_of_the_running_statistics_disables_the_kernel(monkeypatch):
    norm = make_norm("bn", 8)
    monkeypatch.setattr(BatchNorm, "enter", lambda self, rows, mean, var, share: None)
    norm(torch.randn(4, 6, 8))
    assert norm.running_mean.eq(0).all()


@pytest.mark.parametrize("option", OPTIONS)
def test_an_unchanged_norm_runs_its_kernel(option, monkeypatch):
    norm = make_norm(option, 8)
    assert fast.agrees(norm)  # calls the formula now, so that it is not called below
    monkeypatch.setattr(fast, "agrees", lambda norm: True)
    monkeypatch.setattr(OPTIONS[option], "formula", None)
    in_both_modes(norm, torch.randn(4, 6, 8))


@pytest.mark.parametrize("option", OPTIONS)
def test_comparing_kernel_and_formula_has_no_side_effects_on_the_caller(option, monkeypatch):
    monkeypatch.setattr(fast, "_AGREEMENTS", {})
    before, x = torch.get_rng_state(), torch.ones(4, 6, 8)
    with torch.device("meta"), torch.autocast("cpu", torch.bfloat16), torch.inference_mode():
        norm = make_norm(option, 8)
        assert norm(x.to("meta")).is_meta and fast.agrees(norm)
    monkeypatch.setattr(fast, "_AGREEMENTS", {})
    norm = make_norm(option, 8)  # in a checkpoint, both passes must save the same tensors
    checkpoint(norm, x.requires_grad_(), use_reentrant=False).sum().backward()
    assert list(fast._AGREEMENTS.values()) == [True]
    assert torch.equal(before, torch.get_rng_state())


# The norms that build on layer norm, RMS norm or batch norm, with settings that use it
BUILT_ON = {
    "ln": {"gn": {"groups": 2}, "prepbn": {}},
    "rms": {
        **{"gn": {"groups": 2, "center": False}, "seednorm": {"groups": 2}, "gatednorm": {}},
        **{"pn": {"groups": 2}, "pn_v": {"groups": 2}, "bn_rms": {}, "bhyt": {"kappa": 1.0}},
    },
    "bn": {"repbn": {}, "bn_noisy": {}, "bn_position": {}, "global": {}, "bn_sample": {}},
}


def cases_of(base):
    return [f"{option}-{base}" for option in BUILT_ON[base]]


@pytest.mark.parametrize("case", [case for base in BUILT_ON for case in cases_of(base)])
def test_an_edited_formula_changes_every_norm_that_builds_on_it(case, monkeypatch):
    option, _, base = case.partition("-")
    kind, x = OPTIONS[base], torch.randn(4, 6, 8) + 3
    norm = make_norm(option, 8, **BUILT_ON[base][option])
    edited = copy.deepcopy(norm)
    plain, formula = in_both_modes(norm, x), kind.formula
    monkeypatch.setattr(kind, "formula", lambda self, x, *rest: formula(self, x, *rest) ** 3)
    changed = [
        (a - b).abs().max() > 0.1 for a, b in zip(plain, in_both_modes(edited, x), strict=True)
    ]
    assert changed == [True, option != "prepbn"]  # PRepBN uses layer norm only in training
