"""Subjects of a second for examinations: tiny models, at their first values or a little trained."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from normlab.inspect.model import Subject, subject_of_config
from normlab.inspect.question import Finding
from normlab.norms.base import running_norms
from normlab.records.record import plain
from normlab.train.build import make_norm
from tests.tiny_runs import tiny, write_corpus

ROOT = Path(__file__).resolve().parents[2]
NORMS = sorted(path.stem for path in (ROOT / "configs" / "norm").glob("*.yaml"))
OVER_BATCH, OVER_TIME = (
    {norm for norm in NORMS if axis in make_norm(norm, 16).pools} for axis in ("batch", "position")
)
# One norm of each way to see other tokens, both placements, and one with a warm-up.
_KINDS = {"none": "pre", "ln": "post", "in": "pre", "bn_position": "pre", "bn": "post", "pn": "pre"}
EVERY_KIND = pytest.mark.parametrize(("norm", "placement"), _KINDS.items())
SENTENCES = 400
LARGER = ("task.vocab_size=300", "model.max_positions=256")
"""Words are tokens, so that sentences are short and many of one length; room for much padding."""

_made: dict[tuple[str, ...], Subject] = {}
_corpora: list[Path] = []


def subject(tmp_path: Path, *overrides: str) -> Subject:
    """Return the subject of a tiny config, made once for the same overrides: do not change it.

    The corpus has 400 training sentences and is written once, into the first `tmp_path` given.
    """
    if overrides not in _made:
        if not _corpora:
            _corpora.append(write_corpus(tmp_path / "corpus", train=SENTENCES))
        arguments = tiny(_corpora[0], tmp_path / "runs", *LARGER, *_fitting(overrides))
        _made[overrides] = subject_of_config(arguments)
    return _made[overrides]


def trained(tmp_path: Path, *overrides: str, steps: int = 12) -> Subject:
    """Return the subject after some steps of Adam: weights and running statistics have moved."""
    first = subject(tmp_path, *overrides)
    key = (*overrides, f"steps={steps}")
    if key not in _made:
        torch.manual_seed(0)
        model = copy.deepcopy(first.model).train()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for step in range(steps):
            batch = first.batch("train", range(6 * step, 6 * step + 6))
            loss = first.task.losses(model, batch)["loss"] / batch.counts["loss"]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        _made[key] = replace(first, model=model.eval(), step=steps)
    return _made[key]


def _fitting(overrides: tuple[str, ...]) -> tuple[str, ...]:
    """Return the overrides with what a norm's own values must be at the tiny width of 16.

    Groups have to divide it, and a sixteenth of it would be one feature, which may be near 0. What
    PRepBN pools it shows in the middle of its blend.
    """
    values = {"norm=gn": "norm.groups=4", "norm=prms": "norm.share=0.5"}
    values |= {"norm=gn_sample": "norm.groups=4", "norm=prepbn": "norm.start=0.5"}
    return (*overrides, *(value for norm, value in values.items() if norm in overrides))


class Untouched:
    """Checks on exit that nothing of a subject's model has changed: values, modes, gradients."""

    def __init__(self, subject: Subject):
        self.model = subject.model

    def __enter__(self) -> "Untouched":
        self.state = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.modes = [module.training for module in self.model.modules()]
        self.hooks = self._hooks()
        self.attributes = [set(vars(module)) for module in self.model.modules()]
        self.wanted = [parameter.requires_grad for parameter in self.model.parameters()]
        self.norms = self._norms()
        self.random = torch.get_rng_state()
        return self

    def __exit__(self, *failed: object) -> None:
        if failed[0] is not None:
            return
        now = self.model.state_dict()
        assert now.keys() == self.state.keys()
        assert all(torch.equal(now[name], value) for name, value in self.state.items())
        assert [module.training for module in self.model.modules()] == self.modes
        assert self._hooks() == self.hooks
        assert [set(vars(module)) for module in self.model.modules()] == self.attributes
        assert [parameter.requires_grad for parameter in self.model.parameters()] == self.wanted
        assert all(parameter.grad is None for parameter in self.model.parameters())
        assert self._norms() == self.norms
        assert torch.equal(torch.get_rng_state(), self.random)

    def _norms(self) -> list[tuple[int, int, str]]:
        norms = running_norms(self.model)
        return [(len(norm.watchers), id(norm.seen), norm.eval_stats) for norm in norms]

    def _hooks(self) -> list[int]:
        return [
            len(module._forward_hooks) + len(module._forward_pre_hooks)
            for module in self.model.modules()
        ]


def examined(about: Subject, ask: Callable[[Subject], Finding]) -> Finding:
    """Ask a question, and check what holds of all: plain values, one line, the model untouched."""
    with Untouched(about):
        finding = ask(about)
    json.dumps(plain(dict(finding.values)), allow_nan=False)
    assert "\n" not in finding.answer
    assert all(len(row) == len(finding.table.columns) for row in finding.table.rows)
    return finding
