"""Tiny models for tests of questions, untrained or briefly trained."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from normlab.config.registry import option_names
from normlab.findings.finding import Finding
from normlab.inspection.model import batch_mates, padding, statistics
from normlab.inspection.model.built_model import BuiltModel, model_from_overrides
from normlab.norms.make import make_norm
from normlab.norms.running import running_norms
from normlab.records.record import plain
from tests.tiny_runs import tiny, write_corpus

OVER_BATCH, OVER_TIME = (
    {norm for norm in option_names("norm") if axis in make_norm(norm, 16).pools}
    for axis in ("batch", "position")
)
SENTENCES = 400
FEW_SHARES = (0.0, 0.3, 0.8)
LARGER = ("task.vocab_size=300", "model.max_positions=256")
"""Each word is a token, so sentences are short, and many share a length. There is room to pad."""

_made: dict[tuple[str, ...], BuiltModel] = {}
_corpora: list[Path] = []


def untrained(tmp_path: Path, *overrides: str) -> BuiltModel:
    """Return the model of a tiny config, cached by its overrides. Do not change it.

    The corpus has 400 training sentences and is written once, into the first `tmp_path`.
    """
    if overrides not in _made:
        if not _corpora:
            _corpora.append(write_corpus(tmp_path / "corpus", train=SENTENCES))
        _made[overrides] = model_from_overrides(
            tiny(_corpora[0], tmp_path / "runs", *LARGER, *overrides)
        )
    return _made[overrides]


def trained(tmp_path: Path, *overrides: str, steps: int = 12) -> BuiltModel:
    """Return the model after a few Adam steps, with changed weights and running statistics."""
    first = untrained(tmp_path, *overrides)
    key = (*overrides, f"steps={steps}")
    if key not in _made:
        torch.manual_seed(0)
        model = copy.deepcopy(first.model).train()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for step in range(steps):
            batch = first.batch("train", range(6 * step, 6 * step + 6))
            optimizer.zero_grad()
            (first.losses(batch, model)["loss"] / batch.counts["loss"]).backward()
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        _made[key] = replace(first, model=model.eval(), step=steps)
    return _made[key]


def _state(about: BuiltModel) -> list[object]:
    """Return the state other than tensors that an inspection must not change."""
    modules, norms = [*about.model.modules()], running_norms(about.model)
    return [
        [
            (
                m.training,
                set(vars(m)) - {"clock", "phases"},
                len(m._forward_hooks),
                len(m._forward_pre_hooks),
            )
            for m in modules
        ],
        [(p.requires_grad, p.grad) for p in about.model.parameters()],
        [(len(norm.watchers), id(norm.last_batch), norm.eval_stats) for norm in norms],
    ]


def examined(about: BuiltModel, ask: Callable[[BuiltModel], Finding]) -> Finding:
    """Ask a question, and check that its answer is plain and that the model is unchanged."""
    tensors = {name: value.clone() for name, value in about.model.state_dict().items()}
    state, random = _state(about), torch.get_rng_state()
    finding = ask(about)
    now = about.model.state_dict()
    assert now.keys() == tensors.keys() and _state(about) == state
    assert all(torch.equal(now[name], value) for name, value in tensors.items())
    assert torch.equal(torch.get_rng_state(), random)
    json.dumps(plain(dict(finding.values)), allow_nan=False)
    assert "\n" not in finding.answer
    assert all(len(row) == len(finding.table.columns) for row in finding.table.rows)
    return finding


def ask_about_few_sentences(patch):
    """Let the questions use only a few sentences."""
    patch.setattr(batch_mates, "SETS", 3)
    patch.setattr(padding, "SHARES", FEW_SHARES)
    patch.setattr(padding, "SENTENCES", 8)
    patch.setattr(statistics, "SENTENCES", 40)
    patch.setattr(statistics, "RECALIBRATION_BATCHES", 6)
