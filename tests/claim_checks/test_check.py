"""A finding reports the measurement: broken norms, formulas and data change its sentence."""

import json
from itertools import count

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.module import register_module_forward_hook

from normlab.claim_checks import (
    axes,
    batch,
    depth,
    facts,
    images,
    inputs,
    modes,
    padding,
    positions,
    residual,
    sampling,
    shape,
    word_attention,
)
from normlab.claim_checks import checks as all_checks
from normlab.errors import UserError
from normlab.norms.base import Norm
from normlab.placements.post import PostResidual

NORMS = (Norm, nn.LayerNorm, _BatchNorm)
NOISE = count()
OUTPUTS = {
    "differs at each call": lambda x, y: y * (1 + 0.1 * (next(NOISE) % 7)),
    "is the input": lambda x, y: x.clone(),
    "is the same everywhere": lambda x, y: 0 * y + 0.3,
    "mixes features and is too large": lambda x, y: 9 * y.roll(1, -1) + 5,
}
"""What broken norms return, given their input and their output."""


def constants(module, **values):
    return lambda patch: [patch.setattr(module, key, value) for key, value in values.items()]


def scaled(factor):
    """Draw weights that are larger or smaller by a factor."""

    def patches(patch):
        for name in ("rand", "randn"):
            draw = getattr(torch, name)
            patch.setattr(torch, name, lambda *a, draw=draw, **k: factor * draw(*a, **k))

    return patches


def raises(self, x):
    raise RuntimeError("broken")


def variances(law):
    """Make the variance of a mean over tokens follow a different law."""

    def measured(length, correlation):
        return {n * length: law(n * length, length) for n in (8, 16, 32, 64, 128, 256)}

    return constants(sampling, variances_of_means=measured)


def with_all_pooled(name, **values):
    """Build `bn` instead of any other norm, and `ln` instead of `bn`."""
    return inputs.new_norm("bn" if name != "bn" else "ln")


def instead(module, name, **options):
    """Replace norms that a module builds by different ones."""
    real = getattr(module, name)
    return lambda patch: patch.setattr(
        module, name, lambda asked, *a, **k: real(options.get(asked, asked), *a)
    )


def moved_by_shifts(patch):
    built = images.new_norm
    pixels = images.HEIGHT**2
    patch.setattr(
        images,
        "new_norm",
        lambda name, dim, **k: (
            built("bn_position", dim, num_positions=pixels)
            if name == "ln"
            else built(name, dim, **k)
        ),
    )


def equal_weights(*size, seed=None):
    """Draw tokens, but give all features the same weight."""
    return inputs.draw_normal(*size) if seed is None else torch.ones(*size, dtype=torch.float64)


def full_batch(*lengths, of_lengths=padding.padded_batch):
    return of_lengths(5, 5)


def attention_to_itself(logits, dim):
    return torch.diag_embed(logits.diagonal(dim1=-2, dim2=-1))


def surveys(patch, tmp_path):
    patch.setattr(facts, "surveyed", lambda: {"A": {"norms": {"batch": 1}, "order": "post"}})
    vision = tmp_path / "vision.json"
    vision.write_text(json.dumps({"classes": {"a": {"layer": 2}}}), "utf-8")
    patch.setattr(facts, "VISION", vision)


def swapped_positions(patch):
    corpora = positions.read_word_counts()
    for corpus in corpora.values():
        places = corpus["positions"]
        places["1"], places["all"] = places["all"], places["1"]
    patch.setattr(positions, "read_word_counts", lambda: corpora)


def equal_lengths(patch):
    corpora = positions.read_word_counts()
    for corpus in corpora.values():
        corpus["lengths"] = [[7, 100]]
    patch.setattr(positions, "read_word_counts", lambda: corpora)


def one_first_word(patch):
    corpora = positions.read_word_counts()
    for corpus in corpora.values():
        corpus["positions"]["1"] = [[100, 1]]
    patch.setattr(positions, "read_word_counts", lambda: corpora)


BROKEN = {
    "code axes.positions": [
        constants(nn.BatchNorm1d, forward=lambda self, x: x),
        constants(nn.BatchNorm1d, forward=raises),
        constants(nn.BatchNorm1d, forward=lambda self, x: x - x.mean(0)),
        constants(nn.LayerNorm, forward=lambda self, x: x[:1]),
        instead(axes, "norm_of_example_width", bn_sample="bn", bn_position="bn"),
    ],
    "batch.alone": [instead(batch, "trained_norm", bn_position="bn")],
    "depth": [
        constants(depth, lowest_over_highest=lambda kind, norm: 1.0 if norm == "none" else 1e-3)
    ],
    "images.shift": [
        moved_by_shifts,
        constants(images, convolved=lambda x: x * inputs.draw_normal(1, 36, 1)),
    ],
    "images.local": [constants(images, mean_correlation=lambda images, apart: 0.1 * apart)],
    "mixing": [
        constants(Tensor, softmax=attention_to_itself),
        scaled(0),
        constants(nn.functional, conv1d=lambda x, weight: 0 * x[:, :5]),
    ],
    "modes": [
        constants(modes, new_norm=with_all_pooled),
        constants(modes, trained_norm=lambda name: inputs.new_norm(name).eval()),
    ],
    "outlier.values": [
        constants(Tensor, softmax=lambda x, dim: torch.full_like(x, 1 / 3)),
        constants(Tensor, softmax=lambda x, dim: (x == x.max()).double()),
    ],
    "padding": [
        constants(padding, FIVE=(1.0, 2.0, 3.0, 4.0, 6.0)),
        constants(padding, BATCH_OF_THREE=("a b c d e",) * 3),
        constants(padding, padded_batch=full_batch),
    ],
    "residual": [constants(residual, PreResidual=PostResidual)],
    "sampling": [
        variances(lambda tokens, length: 1.0),
        variances(lambda tokens, length: 1 / tokens),
        variances(lambda tokens, length: length / tokens),
    ],
    "shape.growth": [scaled(0.01), scaled(100.0)],
    "shape.kept": [constants(Tensor, exponential_=Tensor.normal_)],
    "shape.moments": [constants(shape, draw_normal=equal_weights)],
    "facts": [constants(facts, LAYERS=6)],
    "positions": [swapped_positions, one_first_word, equal_lengths],
}
"""Changes of constants, data and formulas, by the checks that they break."""


OF_DATA = ("depth", "facts", "positions", "sampling")


def checks(prefixes=""):
    return [each for each in all_checks() if each.name.startswith(tuple(prefixes.split()) or "")]


def findings(chosen):
    """Return findings by check and name, without checks that raise on a broken norm."""
    result = {}
    for check in chosen:
        try:
            result |= {(check.name, each.name): each for each in check.ask()}
        except (AssertionError, IndexError, RuntimeError, UserError, ZeroDivisionError):
            continue
    return result


def test_a_finding_whose_standing_changes_has_a_different_sentence(tmp_path, monkeypatch):
    constants(word_attention, DRAWS=3)(monkeypatch)
    constants(batch, SETS=3)(monkeypatch)
    sound = findings(checks())
    broken = []
    with_norms = [each for each in checks() if not each.name.startswith(OF_DATA)]
    for output in OUTPUTS.values():
        hook = register_module_forward_hook(
            lambda module, x, y, output=output: (
                output(x[0], y) if isinstance(module, NORMS) else None
            )
        )
        broken += [*findings(with_norms).items()]
        hook.remove()
    for prefixes, changes in BROKEN.items():
        for change in changes:
            with pytest.MonkeyPatch.context() as patch:
                change(patch)
                broken += [*findings(checks(prefixes)).items()]
    with pytest.MonkeyPatch.context() as patch:
        surveys(patch, tmp_path)
        broken += [*findings(checks("facts")).items()]
    turned = [(key, each) for key, each in broken if each.standing != sound[key].standing]
    assert [key for key, each in turned if each.finding == sound[key].finding] == []
    assert sorted(sound.keys() - {key for key, _ in turned}) == []  # something breaks each of them
