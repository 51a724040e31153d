"""The state of norms: training, eval, warm-ups, saving, recalibration, compilation."""

import sys

import pytest
import torch

from normlab.config.registry import option_names
from normlab.norms.base import during
from normlab.norms.make import make_norm
from normlab.norms.model_norms import recalibrated
from normlab.norms.ramp import Clock
from normlab.norms.running import RunningNorm
from normlab.norms.tokens import Tokens
from tests.norms.trained_norms import (
    PAST,
    VALID,
    model_norms_of,
    random_batch,
    take_step,
    trained_norm,
)
from tests.training.trainers import on_ranks

RUNNING = [n for n in option_names("norm") if isinstance(make_norm(n, 8), RunningNorm)]
WARMUPS = [n for n in RUNNING if make_norm(n, 8).ramps]


@pytest.mark.parametrize("option", RUNNING)
def test_frozen_statistics_do_not_change_and_training_then_equals_inference(option):
    norm = trained_norm(option, 3)
    norms = model_norms_of(norm, freeze_statistics=0.5)
    assert norms.milestones(4)["freeze_statistics"] == 2
    x, tokens = random_batch(9)
    moved = []
    for step in (2, 3):
        before = {name: table.clone() for name, table in norm.tables.items()}
        norms.begin_step(step, 4)
        y = norm.train()(x.requires_grad_(), tokens)
        y[VALID].sum().backward()
        norms.commit()
        moved.append(any(not torch.equal(before[name], t) for name, t in norm.tables.items()))
    assert moved == [True, False]
    assert torch.equal(y[VALID], norm.eval()(x, tokens)[VALID])


def test_freezing_statistics_requires_a_known_number_of_steps():
    with pytest.raises(ValueError, match=r"needs budget\.steps"):
        model_norms_of(make_norm("ln", 8), freeze_statistics=0.5).milestones(None)


def _compiled_and_plain():
    """Return a batch's output, gradient and state with a compiled norm and with a plain one."""
    found = {}
    for option in ("rms", "bn", "pn", "rbn"):
        norms = [make_norm(option, 8).double() for _ in range(2)]
        norms[0].compile(fullgraph=option in ("rms", "bn"), backend="aot_eager")
        found[option] = [[*take_step(norm, 1), norm.state_dict()] for norm in norms]
    return found


def test_compiled_norms_equal_eager_ones_and_those_without_a_custom_backward_are_one_graph():
    """It runs in a separate process, because the tests' shape checks cannot be compiled."""
    (found,) = on_ranks(1, _compiled_and_plain)
    for both in found.values():
        torch.testing.assert_close(*both)


def test_norms_do_not_import_the_compiler_unless_something_is_compiled(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    for option in ("bn_noisy", "pn", "rbn"):
        make_norm(option, 8)(torch.randn(2, 3, 8))
    assert "torch._dynamo" not in sys.modules


def test_a_batch_of_one_token_and_a_position_beyond_num_positions_are_refused():
    with pytest.raises(ValueError, match="batch of 1 token"):
        make_norm("bn", 8)(torch.randn(1, 3, 8), Tokens(torch.tensor([[True, False, False]])))
    with pytest.raises(ValueError, match="num_positions=4"):
        make_norm("bn_position", 8, num_positions=4).double()(*random_batch())


def test_recalibration_pools_batches_as_one_and_then_restores_the_old_statistics():
    norm = trained_norm("bn")
    model = torch.nn.Sequential(norm)
    former = {name: table.clone() for name, table in norm.tables.items()}
    tokens = torch.cat([random_batch(seed)[0][VALID] for seed in (20, 21)])
    with recalibrated(model, lambda: [norm(*random_batch(seed)) for seed in (20, 21)]):
        torch.testing.assert_close(norm.running_mean[0], tokens.mean(0))
        torch.testing.assert_close(norm.running_var[0], tokens.var(0))
    torch.testing.assert_close(norm.tables, former, rtol=0, atol=0)
    with pytest.raises(ValueError, match="at least one batch"), recalibrated(model, lambda: None):
        pass


@pytest.mark.parametrize("option", WARMUPS)
def test_a_warm_up_is_a_share_of_the_run_unless_it_is_set_in_steps(option):
    assert make_norm(option, 8, warmup_share=0.5).last_steps(40)["warmup"] == 20
    norm = make_norm(option, 8, warmup_steps=7)
    for step in (7, 8):
        norm.begin_step(Clock(step, 40))
        assert during(norm, "warmup") == (step == 7)
    with pytest.raises(ValueError, match=r"norm\.\w+_share=.*budget\.steps.*norm\.\w+_steps"):
        make_norm(option, 8).last_steps(None)
    with pytest.raises(ValueError, match=r"norm\.warmup_share=2\.0"):
        make_norm(option, 8, warmup_share=2.0)


@pytest.mark.parametrize("option", ["bn", *WARMUPS])
def test_a_second_forward_pass_before_backward_does_not_change_the_first_ones_gradient(option):
    norm = trained_norm(option)
    state = {name: value.clone() for name, value in norm.state_dict().items()}
    grads = []
    for order in ("apart", "together"):
        norm.load_state_dict(state)
        xs, sums = [random_batch(seed)[0].requires_grad_() for seed in (50, 51)], []
        for x in xs:
            sums.append((norm(x, Tokens(VALID)) * VALID[..., None]).square().sum())
            if order == "apart":
                kept = {name: table.clone() for name, table in norm.tables.items()}
                sums[-1].backward()
                for name, table in norm.tables.items():  # no gradient moment is known yet
                    table.copy_(kept[name])
        if order == "together":
            (sums[0] + sums[1]).backward()
        grads.append([x.grad for x in xs])
    torch.testing.assert_close(grads[0][0], grads[1][0])
    assert all(bool(grad.isfinite().all()) for order in grads for grad in order)


@pytest.mark.parametrize("saved", [2, PAST - 2])
@pytest.mark.parametrize("option", ["bn_noisy", *WARMUPS])
def test_a_saved_norm_resumes_bitwise(option, saved):
    norm, resumed = trained_norm(option, saved), make_norm(option, 8).double()
    resumed.load_state_dict(norm.state_dict())
    for step in range(saved + 1, PAST + 2):
        torch.testing.assert_close(take_step(resumed, step), take_step(norm, step), rtol=0, atol=0)
    torch.testing.assert_close(resumed.state_dict(), norm.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("past", [3, PAST])
@pytest.mark.parametrize("option", WARMUPS)
def test_micro_batches_of_one_update_are_added_to_the_statistics_as_one_batch(option, past):
    found = []
    for size in (4, 2):
        norm, (x, tokens) = trained_norm(option, past), random_batch(40)
        norms = model_norms_of(norm)
        norms.begin_step(past + 1, PAST)
        before = [moment.clone() for moment in norm.running_moments()]
        for part, valid in zip(x.split(size), tokens.valid.split(size), strict=True):
            norm(part.requires_grad_(), Tokens(valid)).sum().backward()
            torch.testing.assert_close(list(norm.running_moments()), before, rtol=0, atol=0)
        norms.commit()
        found.append([*norm.running_moments(), norm.get_extra_state()])
    torch.testing.assert_close(*found)


def test_batch_norm_updates_its_statistics_after_every_micro_batch():
    norm, alone = trained_norm("bn", 3), trained_norm("bn", 3)
    norms = model_norms_of(norm)
    norms.begin_step(4, PAST)
    for seed in (40, 41):
        torch.testing.assert_close(norm(*random_batch(seed)), alone(*random_batch(seed)))
    norms.commit()
    torch.testing.assert_close(norm.tables, alone.tables)


def test_noisy_batch_norm_draws_one_shift_and_scale_per_step_for_all_tokens():
    norm = make_norm("bn_noisy", 8, noise_shift=0.5, noise_scale=1.25).double()
    norm.initialize(torch.Generator().manual_seed(1))
    plain, (x, tokens) = make_norm("bn", 8).double(), random_batch()
    z, moves = plain(x, tokens)[VALID], []
    for step in (1, 2, 1):
        norm.begin_step(Clock(step))
        moved = norm(x, tokens)[VALID]
        scale = moved.std(0) / z.std(0)
        shift = (moved - z * scale).mean(0)
        torch.testing.assert_close(moved, z * scale + shift)
        assert (scale >= 1).all() and (scale <= 1.25).all() and (shift.abs() <= 0.5).all()
        moves.append(torch.stack([shift, scale]))
    torch.testing.assert_close(moves[0], moves[2])
    assert not torch.isclose(moves[0], moves[1]).any()


@pytest.mark.parametrize("option", ["pn", "mabn", "un"])
def test_ghost_batches_keep_statistics_finite_past_the_warm_up_without_a_run(option):
    norm = trained_norm(option, PAST + 4, ghost=2)
    assert all(bool(table.isfinite().all()) for table in norm.tables.values())
