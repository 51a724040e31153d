"""Norms with a warm-up, a penalty or a backward pass of their own: what they ask of a run."""

import pytest
import torch

from normlab.config.registry import option_names
from normlab.norms.base import Clock, RunningNorm, Stream
from normlab.norms.model import ModelNorms
from normlab.train.build import make_norm

STATEFUL = [n for n in option_names("norm") if isinstance(make_norm(n, 8), RunningNorm)]
WARMUPS = [n for n in STATEFUL if make_norm(n, 8).phases]
PAST = 20  # steps: the end of every warm-up


def _batch(seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(4, 6, 8, generator=generator, dtype=torch.float64) * 3 + 2
    valid = torch.arange(6)[None] < torch.tensor([6, 2, 4, 5])[:, None]
    return x, Stream(valid)


def _step(norm, step, *, total=PAST, seed=None):
    x, stream = _batch(step if seed is None else seed)
    x.requires_grad_()
    norm.clock = Clock(step, total)
    y = norm(x, stream) * stream.valid[..., None]
    (y * y.detach().cos()).sum().backward()
    return y.detach(), x.grad


def _trained(option, steps=PAST, **values):
    norm = make_norm(option, 8, **values).double()
    for step in range(1, steps + 1):
        _step(norm, step)
    return norm


@pytest.mark.parametrize("option", WARMUPS)
def test_a_warm_up_is_a_share_of_the_run_unless_it_is_given_in_steps(option):
    assert make_norm(option, 8, warmup_share=0.5).last_steps(40)["warmup"] == 20
    norm = make_norm(option, 8, warmup_steps=7)
    norm.clock = Clock(7, 40)
    assert norm.during("warmup")
    norm.clock = Clock(8, 40)
    assert not norm.during("warmup")
    with pytest.raises(ValueError, match=r"norm\.\w+_share=.*budget\.steps.*norm\.\w+_steps"):
        make_norm(option, 8).last_steps(None)
    with pytest.raises(ValueError, match=r"norm\.warmup_share=2\.0"):
        make_norm(option, 8, warmup_share=2.0)


@pytest.mark.parametrize("option", STATEFUL)
def test_two_forwards_before_one_backward_have_the_gradients_of_each(option):
    norm = _trained(option)
    state = {name: value.clone() for name, value in norm.state_dict().items()}
    grads = []
    for order in ("apart", "together"):
        norm.load_state_dict(state)
        pairs = [_batch(seed) for seed in (50, 51)]
        xs = [x.requires_grad_() for x, _ in pairs]
        sums = []
        for x, (_, stream) in zip(xs, pairs, strict=True):
            sums.append((norm(x, stream) * stream.valid[..., None]).square().sum())
            if order == "apart":
                with torch.no_grad():
                    kept = {name: table.clone() for name, table in norm.tables.items()}
                sums[-1].backward()
                for name, table in norm.tables.items():  # of the gradient nothing is known yet
                    table.copy_(kept[name])
        if order == "together":
            (sums[0] + sums[1]).backward()
        grads.append([x.grad for x in xs])
    torch.testing.assert_close(grads[0][0], grads[1][0])
    assert all(bool(grad.isfinite().all()) for order in grads for grad in order)


@pytest.mark.parametrize("saved", [2, PAST - 2])
@pytest.mark.parametrize("option", STATEFUL)
def test_a_saved_norm_goes_on_bitwise_past_the_end_of_its_warm_up(option, saved):
    norm, resumed = _trained(option, saved), make_norm(option, 8).double()
    resumed.load_state_dict(norm.state_dict())
    for step in range(saved + 1, PAST + 2):
        torch.testing.assert_close(_step(resumed, step), _step(norm, step), rtol=0, atol=0)
    torch.testing.assert_close(resumed.state_dict(), norm.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("option", [n for n in STATEFUL if n not in WARMUPS])
def test_micro_batches_enter_the_statistics_one_by_one_where_there_is_no_warm_up(option):
    norm, alone = _trained(option, 3), _trained(option, 3)
    norms = ModelNorms(torch.nn.Sequential(norm))
    norms.begin_step(4, PAST)
    alone.clock = Clock(4, PAST)
    for seed in (40, 41):
        torch.testing.assert_close(norm(*_batch(seed)), alone(*_batch(seed)))
    norms.commit()
    torch.testing.assert_close(norm.tables, alone.tables)


@pytest.mark.parametrize("past", [3, PAST])
@pytest.mark.parametrize("option", WARMUPS)
def test_micro_batches_of_an_update_enter_the_statistics_as_one_batch(option, past):
    whole, halves = _trained(option, past), _trained(option, past)
    x, stream = _batch(40)
    for norm, size in ((whole, 4), (halves, 2)):
        norms = ModelNorms(torch.nn.Sequential(norm))
        norms.begin_step(past + 1, PAST)
        before = [moment.clone() for moment in norm.running_moments()]
        for part, valid in zip(x.split(size), stream.valid.split(size), strict=True):
            norm(part.requires_grad_(), Stream(valid)).sum().backward()
            torch.testing.assert_close(list(norm.running_moments()), before, rtol=0, atol=0)
        norms.commit()
    torch.testing.assert_close(list(halves.running_moments()), list(whole.running_moments()))
    torch.testing.assert_close(halves.get_extra_state(), whole.get_extra_state())


@pytest.mark.parametrize("ghost", [None, 1])
def test_two_micro_batches_are_one_batch_to_power_norm_after_its_warm_up(ghost):
    found = []
    for size in (4, 2):
        norm = _trained("pn", 8, backward="paper", ghost=ghost)
        norms, (x, stream) = ModelNorms(torch.nn.Sequential(norm)), _batch(40)
        norms.begin_step(9, PAST)
        outputs, grads = [], []
        for part, valid in zip(x.split(size), stream.valid.split(size), strict=True):
            y = norm(part.requires_grad_(), Stream(valid)) * valid[..., None]
            (grad,) = torch.autograd.grad((y * part.detach().cos()).sum(), part)
            outputs.append(y.detach())
            grads.append(grad)
        norms.commit()
        found.append([torch.cat(outputs), torch.cat(grads), norm.tables])
    torch.testing.assert_close(found[0], found[1])


def test_power_norm_divides_by_the_running_square_after_its_warm_up():
    norm = _trained("pn", groups=None, affine=False)
    x, stream = _batch(60)
    norm.clock = Clock(PAST + 1, PAST)
    before = norm.running_square.clone()
    y = norm(x, stream)
    expected = x / (before + norm.eps).sqrt()
    torch.testing.assert_close(y[stream.valid], expected[stream.valid])


def test_the_backward_pass_of_the_paper_and_of_the_code_are_one_in_the_warm_up_only():
    code, paper = make_norm("pn", 8).double(), make_norm("pn", 8, backward="paper").double()
    for step in range(1, 11):
        (y, dx), (other_y, other_dx) = _step(code, step), _step(paper, step)
        assert torch.allclose(dx, other_dx) == (step <= 5)
        if step <= 6:
            torch.testing.assert_close(y, other_y)


def test_pn_v_is_batch_norm_of_tokens_whose_mean_is_zero():
    x, stream = _batch()
    x = (x - x[stream.valid].mean(0)).requires_grad_()
    y = make_norm("pn_v", 8, groups=None).double()(x, stream)
    expected = make_norm("bn", 8).double()(x, stream)
    torch.testing.assert_close(y, expected)


def test_batch_renorm_is_batch_norm_while_its_bounds_stand():
    renorm, plain = make_norm("brn", 8, eps=0.0).double(), make_norm("bn", 8, eps=0.0).double()
    steps = _step(renorm, 2, total=4 * PAST), _step(plain, 2)
    for found, expected in zip(*steps, strict=True):
        torch.testing.assert_close(found, expected)
    renorm.clock = Clock(PAST, PAST)
    assert not torch.allclose(renorm(*_batch(5)), plain(*_batch(5)))


def test_noisy_batch_norm_moves_all_tokens_alike_by_the_step_and_the_place_alone():
    values = {"noise_shift": 0.5, "noise_scale": 1.25, "affine": True}
    norm, plain = make_norm("bn_noisy", 8, **values).double(), make_norm("bn", 8).double()
    norm.initialize(torch.Generator().manual_seed(1))
    for one in (norm, plain):
        torch.nn.init.normal_(one.weight)
        one.bias.data.copy_(one.weight)
        torch.manual_seed(0)
    plain.load_state_dict(norm.state_dict())
    x, stream = _batch()
    moves = []
    for step in (1, 2, 1):
        norm.clock = Clock(step)
        z = (plain(x, stream) - plain.bias)[stream.valid] / plain.weight
        moved = (norm(x, stream) - norm.bias)[stream.valid] / norm.weight
        scale = moved.std(0) / z.std(0)
        shift = (moved - z * scale).mean(0)
        torch.testing.assert_close(moved, z * scale + shift)
        assert (scale >= 1).all() and (scale <= 1.25).all() and (shift.abs() <= 0.5).all()
        moves.append(torch.stack([shift, scale]))
    torch.testing.assert_close(moves[0], moves[2])
    assert not torch.isclose(moves[0], moves[1]).any()
    torch.testing.assert_close(norm.eval()(x, stream), plain.eval()(x, stream))


def test_the_penalty_draws_on_the_batch_and_is_given_once_and_only_in_training():
    norm = make_norm("rbn", 8, penalty_mean=0.5, penalty_var=0.0, momentum=0.25).double()
    norms = ModelNorms(torch.nn.Sequential(norm, make_norm("bn", 8)))
    assert norms.penalty() is None
    x, stream = _batch()
    x.requires_grad_()
    norm(x, stream)
    penalty = norms.penalty()
    assert penalty is not None
    # The batch has entered: of a distance of mu to a running mean of 0, three quarters are left.
    mean = x[stream.valid].mean(0)
    torch.testing.assert_close(penalty, 0.5 * (0.75 * mean).square().sum())
    (grad,) = torch.autograd.grad(penalty, x)
    assert grad[stream.valid].abs().min() > 0 and not grad[~stream.valid].any()
    assert norms.penalty() is None
    norm.eval()(x, stream)
    assert norms.penalty() is None


def test_unified_norm_leaves_an_outlying_batch_out_of_its_window():
    norm = _trained("un", filter=True)
    x, stream = _batch(33)
    norm.clock = Clock(PAST + 1, PAST)
    running = norm.running_square.clone()
    y = norm(100 * x, stream)
    torch.testing.assert_close(norm.squares[norm.last.slot], running[0])
    square = (100 * x)[stream.valid].square().mean(0)
    expected = 100 * x / (square + norm.eps).sqrt()
    torch.testing.assert_close(y[stream.valid], expected[stream.valid])


@pytest.mark.parametrize("option", ["pn", "mabn", "un"])
def test_ghost_batches_train_past_the_warm_up_outside_of_a_run(option):
    norm = _trained(option, PAST + 4, ghost=2)
    assert all(bool(table.isfinite().all()) for table in norm.tables.values())
