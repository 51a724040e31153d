"""Probes of a recurrent cell and of its norms."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from normlab.models.layers import initialize
from normlab.models.recurrent import LstmArchitecture, Recurrent
from normlab.norms.base import NoNorm
from normlab.norms.make import make_norm
from normlab.norms.tokens import Tokens
from normlab.placements.base import Norms
from normlab.probes.activations import Activations, AttentionWeights, Branches, Drift
from normlab.probes.base import ProbeGroup
from normlab.probes.independence import Independence
from normlab.probes.sites import sublayer_kinds
from tests.probes.one_probe import view


def test_probes_measure_a_recurrent_cell_and_all_time_steps_of_its_norms():
    """The cell's norm gets one step at a time, and padding is left out."""
    arch = LstmArchitecture(
        dim=4,
        dropout=0.0,
        num_layers=1,
        initial_noise=0.0,
        read="pixels",
        permutation_seed=0,
        input_statistics="step",
        norm_shifts=False,
        gain=None,
        recurrent_init="orthogonal",
        forget_bias=1.0,
    )
    norms = Norms([("*", NoNorm), ("*.cell", partial(make_norm, "bn"))])
    model = nn.ModuleDict({"recurrent": Recurrent(arch, norms, 3)})
    initialize(model, 1)
    probes = {
        "activations": Activations(every=1, threshold=6.0),
        "branches": Branches(every=1),
        "drift": Drift(every=1),
        "independence": Independence(every=1, samples=2, tokens=2),
        "attention": AttentionWeights(every=1, threshold=0.99),
    }
    group = ProbeGroup(probes)
    group.attach(model)
    cells: list[Tensor] = []
    cell = model["recurrent"].layers[0]
    cell.cell_norm.register_forward_pre_hook(lambda _, given: cells.append(given[0]))
    valid = torch.arange(3) < torch.tensor([3, 1, 2, 3])[:, None]
    for step in (1, 2):
        cells.clear()
        group.before_forward(step)
        out = model["recurrent"](torch.randn(4, 3, 3), Tokens(valid))
        group.before_update(view(step, model))
    row = group.metrics()
    real = torch.cat(cells, 1)[valid].detach()
    prefix = "stability/activations"
    assert row[f"{prefix}/var/recurrent.0.cell"] == pytest.approx(float(real.var(correction=0)))
    size = float(out[valid].detach().square().mean().sqrt())
    assert row["stability/branches/rms/recurrent.0"] == pytest.approx(size)
    sites_of_drift = {name.split("/")[3] for name in row if "drift/mean/" in name}
    assert sites_of_drift == {
        "recurrent.0",
        *(f"recurrent.0.{n}" for n in ("input", "hidden", "cell")),
    }
    assert "independence (no norm pools several tokens" in group.notice
    assert "attention (the model has no attention)" in group.notice
    assert not any("independence" in name or "attention" in name for name in row)
    kinds = sublayer_kinds(model)
    assert {kind for name, kind in kinds.items() if "norm" not in name} == {"recurrent"}
    assert kinds["recurrent.layers.0.cell_norm.weight"] == "norm"
