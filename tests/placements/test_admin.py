"""Admin: omega from a profiling pass."""

import torch

from normlab.placements.admin import AdminResidual, profile
from tests.models.small import (
    DIM,
    assert_close,
    sentences,
    seq2seq,
)
from tests.placements.places import IDS, TOKENS


def test_admin_sets_omega_from_the_variances_of_the_preceding_branches():
    model = seq2seq("ln", "admin", dropout=0.3).train()
    stacks = [model.encoder, model.decoder]
    seen = []

    def look(_, arguments, added):
        seen.append((inputs[-1], added))

    inputs, hooks = [], []
    for module in model.modules():
        if isinstance(module, AdminResidual):
            hooks.append(module.register_forward_pre_hook(lambda _, args: inputs.append(args)))
            hooks.append(module.dropout.register_forward_hook(look))
    target, tokens = sentences([5, 3, 6], seed=2)
    profile(model, lambda: model(IDS, TOKENS, target, tokens), seed=3)
    found = [[m.omega for m in s.modules() if isinstance(m, AdminResidual)] for s in stacks]
    assert [len(omegas) for omegas in found] == [2 * 2, 2 * 3]

    def variance(x, tokens):
        return x[tokens.valid].var(correction=0)

    for omegas, start in zip(found, (0, 4), strict=True):
        expected = torch.ones(())
        for omega, ((x, of_x, _), added) in zip(omegas, seen[start:], strict=False):
            assert_close(omega, expected.to(omega).expand(DIM))
            expected = (expected**2 * variance(x, of_x) + variance(added, of_x)).sqrt()
    assert all(omega[0] > 1 for omegas in found for omega in omegas[1:])


def test_admins_profiling_pass_changes_only_omega_and_is_reproducible_by_its_seed():
    def omegas(seed):
        model = seq2seq("bn", "admin", dropout=0.3).train()
        before = {name: table.clone() for name, table in model.named_buffers()}
        state = torch.get_rng_state()
        profile(model, lambda: model(IDS, TOKENS, IDS, TOKENS), seed=seed)
        assert torch.equal(torch.get_rng_state(), state)
        assert all(module.training for module in model.modules())
        assert all(torch.equal(table, before[name]) for name, table in model.named_buffers())
        assert not any(module._forward_hooks for module in model.modules())
        return torch.stack([p for name, p in model.named_parameters() if name.endswith("omega")])

    assert torch.equal(omegas(1), omegas(1))
    assert not torch.equal(omegas(1), omegas(2))
