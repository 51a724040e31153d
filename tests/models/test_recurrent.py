"""Recurrent networks match torch's without norms, and the published formulas with norms."""

from functools import cache
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from normlab.config.compose import compose
from normlab.config.run_config import to_dict
from normlab.models.base import Image, Text, TextToText
from normlab.models.noise import noisy
from normlab.models.recurrent import Noise, StateDecoding
from normlab.norms.make import make_norm
from normlab.norms.model_norms import ModelNorms
from normlab.norms.running import running_norms
from normlab.norms.tokens import Tokens
from normlab.training.build import build_model
from tests.models.small import PAD, VOCAB, Words, assert_close, sentences, unsettle

TEXT = Text(vocab=VOCAB, pad_id=PAD, longest=12, causal=True)
IMAGES = Image(height=3, width=4, channels=2, classes=5)
TWINS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
DIM = 8
LENGTHS = [6, 2, 5, 4]
SITES = ("input", "hidden", "cell")


class Given(Words):
    def __init__(self, spec):
        self._spec = spec

    def spec(self):
        return self._spec


@cache
def config_of(*overrides):
    return to_dict(compose(["task=lm", f"model.dim={DIM}", *overrides]))


def network(*overrides, spec: Any = TEXT, model="lstm") -> Any:
    return build_model(config_of(f"model={model}", *overrides), Given(spec)).double()


def inputs(lengths=LENGTHS, width=DIM):
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(len(lengths), max(lengths), width, generator=generator, dtype=torch.double)
    valid = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return x, Tokens(valid)


def by_torch(name, weight):
    """Return the row blocks of an LSTM's weights in torch's order: i, f, g, o."""
    if name != "lstm":
        return weight
    i, f, o, g = weight.chunk(4)
    return torch.cat([i, f, g, o])


@pytest.mark.parametrize("name", TWINS)
def test_without_norms_outputs_and_gradients_match_torchs_network_on_padded_batches(name):
    ours = network("norm=none", "model.num_layers=2", model=name).recurrent
    twin = TWINS[name](DIM, DIM, 2, batch_first=True, dtype=torch.double)
    for number, cell in enumerate(ours.layers):
        with torch.no_grad():
            for tensor in cell.parameters():
                tensor.uniform_(-0.8, 0.8)
        inner = torch.zeros(len(cell.bias), dtype=torch.double)
        if name == "gru":
            inner[-DIM:] = cell.candidate.bias.detach()
        given = (cell.input_weight, cell.hidden_weight, cell.bias)
        parts = [*(by_torch(name, tensor.detach()) for tensor in given), inner]
        kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        for kind, part in zip(kinds, parts, strict=True):
            getattr(twin, f"{kind}_l{number}").data.copy_(part)
    x, tokens = inputs()
    packed = pack_padded_sequence(x, torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False)
    found = ours(x, tokens)
    theirs, _ = pad_packed_sequence(twin(packed)[0], batch_first=True)
    assert_close(found[tokens.valid], theirs[tokens.valid])
    assert_close(found[1, 2:], found[1, 1].expand(4, DIM))  # padding leaves these unchanged
    (found * tokens.valid[..., None]).square().sum().backward()
    theirs.square().sum().backward()
    first = ours.layers[0]
    for mine, other in (
        (first.input_weight, twin.weight_ih_l0),
        (first.hidden_weight, twin.weight_hh_l0),
        (first.bias, twin.bias_ih_l0),
    ):
        assert_close(by_torch(name, mine.grad), other.grad)


def normalized(x, dim, gain=1.0, shift=0.0):
    mean, var = x.mean(dim, keepdim=True), x.var(dim, correction=0, keepdim=True)
    return gain * (x - mean) / (var + 1e-5).sqrt() + shift


@pytest.mark.parametrize(("norm", "dim", "gain"), [("bn_position", 0, 0.1), ("ln", -1, 1.0)])
@pytest.mark.parametrize("shifts", [False, True])
def test_a_normalized_lstm_computes_the_published_formula(norm, dim, gain, shifts):
    whole = network(f"norm={norm}", f"model.norm_shifts={shifts}").recurrent
    (cell,) = whole.layers
    norms = (cell.input_norm, cell.hidden_norm, cell.cell_norm)
    for part in norms:
        assert_close(part.weight, torch.full_like(part.weight, gain), rtol=1e-6)
    assert [isinstance(part.bias, nn.Parameter) for part in norms] == [shifts, shifts, True]
    unsettle(cell, 2)
    x, tokens = inputs([5] * 4)
    h = c = torch.zeros(4, DIM, dtype=torch.double)
    expected = []
    for t in range(5):
        products = x[:, t] @ cell.input_weight.T, h @ cell.hidden_weight.T
        a = cell.bias.clone()
        for product, part in zip(products, norms[:2], strict=True):
            a = a + normalized(product, dim, part.weight, part.bias)
        i, f, o, g = a.chunk(4, dim=-1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * normalized(c, dim, cell.cell_norm.weight, cell.cell_norm.bias).tanh()
        expected.append(h)
    assert_close(whole(x, tokens), torch.stack(expected, 1))


def test_each_time_step_has_its_own_statistics_which_exclude_padding():
    cell = network("norm=bn_position", "norm.momentum=1", "norm.unbiased=false").recurrent
    x, tokens = inputs()
    norm = cell.layers[0].input_norm
    cell(x, tokens)
    product = x @ cell.layers[0].input_weight.T
    mean, var = norm.running_moments()
    for t in range(5):  # the last position has one value and therefore no variance
        there = product[tokens.valid[:, t], t]
        assert_close(mean[t], there.mean(0))
        assert_close(var[t], there.var(0, correction=0))
    assert not mean[5:].any() and (var[5:] == 1).all()
    hidden, _ = cell.layers[0].hidden_norm.running_moments()
    assert hidden[1:5].any(1).all() and not hidden[5:].any()


def test_shared_running_statistics_pool_all_time_steps_once_per_update():
    model = network("norm=bn", "norm.momentum=1", "norm.unbiased=false").recurrent
    x, tokens = inputs()
    norms = ModelNorms(model)
    norms.begin_step(1, 1)
    model(x, tokens)
    norms.commit()
    product = (x @ model.layers[0].input_weight.T)[tokens.valid]
    mean, var = model.layers[0].input_norm.running_moments()
    assert_close(mean[0], product.mean(0))
    assert_close(var[0], product.var(0, correction=0))


def test_sequence_wise_statistics_are_computed_over_the_whole_input_projection():
    overrides = ("norm=none", "norm@input_norm=bn", "model.gain=1")
    model = network(*overrides, "model.input_statistics=sequence").recurrent
    x, tokens = inputs()
    (cell,) = model.layers
    product = (x @ cell.input_weight.T)[tokens.valid]
    found = cell.inputs(x, tokens, [])[tokens.valid] - cell.bias
    assert_close(found, normalized(product, 0))
    by_step = network(*overrides).recurrent
    assert not torch.allclose(by_step(x, tokens), model(x, tokens))


@pytest.mark.parametrize("norm", ["ln", "seqn", "bn", "bn_position"])
def test_every_norm_trains_and_decodes_token_by_token(norm):
    model = network(f"norm={norm}", model="gru" if norm == "ln" else "lstm")
    ids, tokens = sentences([9, 7, 9, 1])
    norms = ModelNorms(model)
    for step in (1, 2):
        norms.begin_step(step, 2)
        model.project(model(ids, tokens)).square().sum().backward()
        norms.commit()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    unsettle(model.eval(), 1)
    with torch.no_grad():
        state = model.start_decoding(4, max_length=9)
        assert isinstance(state, StateDecoding)
        found = torch.stack([model.decode_step(ids[:, t], state) for t in range(9)], dim=1)
        expected = model.project(model(ids, Tokens(torch.ones_like(tokens.valid))))
        assert_close(found, expected)


@torch.no_grad()
def test_noise_on_the_input_reaches_each_token_that_is_decoded_alone():
    model = network("norm=ln").eval()
    ids, _ = sentences([5, 5], seed=1)

    def decoded():
        state = model.start_decoding(2, max_length=5)
        assert isinstance(state, StateDecoding)
        return torch.stack([model.decode_step(column, state) for column in ids.unbind(1)], 1)

    plain = decoded()
    with noisy(model, 2.0):
        moved = (decoded() - plain).abs().amax(-1)
    assert moved.min() > 1e-3
    assert torch.equal(decoded(), plain)


def test_initial_weights_are_the_same_for_every_norm_and_follow_recurrent_init():
    first, second = (network(f"norm={norm}") for norm in ("none", "bn_position"))
    drawn = dict(second.named_parameters())
    assert all(torch.equal(value, drawn[name]) for name, value in first.named_parameters())
    cell = first.recurrent.layers[0]
    for block in cell.hidden_weight.detach().chunk(4):
        assert_close(block @ block.T, torch.eye(DIM).double(), atol=1e-6)
    assert cell.bias.tolist() == [0] * DIM + [1] * DIM + [0] * 2 * DIM
    other = network("model.recurrent_init=identity").recurrent.layers[0]
    assert torch.equal(other.hidden_weight[: 3 * DIM], cell.hidden_weight[: 3 * DIM])
    assert torch.equal(other.hidden_weight[3 * DIM :], torch.eye(DIM).double())
    assert torch.equal(other.input_weight, cell.input_weight)


def test_a_learned_initial_state_starts_at_zero_and_gets_a_gradient():
    plain, learned = network(), network("model.learned_start=true")
    ids, tokens = sentences(LENGTHS)
    first = [each(ids, tokens) for each in (plain, learned)]
    assert torch.equal(*first)
    first[1].square().sum().backward()
    (cell,) = learned.recurrent.cells
    assert cell.start.grad.abs().sum(-1).min() > 0  # the hidden state, and an LSTM's cell


def test_initial_noise_has_its_own_generator_which_resumes_from_a_saved_state():
    first = network("model.initial_noise=0.5")
    noise = first.recurrent.noise
    assert isinstance(noise, Noise)
    state = torch.get_rng_state()
    x = torch.zeros(2, 1, DIM)
    drawn = [noise(x) for _ in range(3)]
    assert torch.equal(torch.get_rng_state(), state)
    assert len({tuple(values.flatten().tolist()) for values in drawn}) == 3
    again = network("model.initial_noise=0.5", "norm=bn").recurrent.noise
    assert torch.equal(again(x), drawn[0])
    later = Noise(0.5)
    later.load_state_dict(again.state_dict())
    assert torch.equal(later(x), drawn[1])
    assert torch.equal(noise.eval()(x), x)


def test_an_image_is_read_by_pixels_by_rows_or_in_a_permuted_order():
    pixels = torch.arange(24.0).view(1, 3, 4, 2).double()
    by = {
        read: network(f"model.read={read}", spec=IMAGES) for read in ("pixels", "rows", "permuted")
    }
    assert torch.equal(by["pixels"].sequence(pixels), pixels.view(1, 12, 2))
    assert torch.equal(by["rows"].sequence(pixels), pixels.view(1, 3, 8))
    order = by["permuted"].sequence(pixels)[0, :, 0] / 2
    assert sorted(order.tolist()) == list(range(12)) != order.tolist()
    again = network("model.read=permuted", "seed=2", spec=IMAGES)
    assert torch.equal(again.order, by["permuted"].order)
    assert by["rows"](pixels).shape == (1, 5)


def test_norms_chosen_by_site_rules_get_the_defaults_of_recurrent_norms():
    rules = "sites={recurrent.1.*:ln,*.cell:none}"
    model = network("norm=bn_position", "model.num_layers=2", rules)
    first, second = model.recurrent.layers
    parts = [getattr(cell, f"{site}_norm") for cell in (first, second) for site in SITES]
    kinds = ["PositionBatchNorm"] * 2 + ["NoNorm"] + ["LayerNorm"] * 2 + ["NoNorm"]
    assert [type(part).__name__ for part in parts] == kinds
    assert first.input_norm.weight.mean() < 0.2 and (second.input_norm.weight == 1).all()
    assert not isinstance(second.hidden_norm.bias, nn.Parameter)
    assert all(norm.by_position for norm in running_norms(model))
    model = network("sites={*.hidden:rms}", model="gru")
    inner = model.recurrent.layers[0].candidate
    assert type(inner.hidden_norm) is type(make_norm("rms", 2)) is not type(inner.input_norm)


@pytest.mark.parametrize(
    ("model", "overrides", "spec", "message"),
    [
        (
            "gru",
            ["norm@cell_norm=ln"],
            TEXT,
            "norm@cell_norm sets a norm that this model does not have",
        ),
        ("lstm", ["norm=in"], TEXT, "one position at a time.*norm@input_norm=ln"),
        ("lstm", ["placement=post"], TEXT, "a recurrent network .*omit placement="),
        ("lstm", [], Text(9, 0, 1, causal=False), "left to right"),
        ("lstm", [], TextToText(9, 9, 0, 1), "model=tiny, mini"),
        (
            "bert_tiny",
            ["norm@hidden_norm=ln"],
            TEXT,
            "norm@hidden_norm sets a norm that this model does",
        ),
    ],
)
def test_invalid_recurrent_settings_raise_an_error(model, overrides, spec, message):
    with pytest.raises(ValueError, match=message):
        network(*overrides, spec=spec, model=model)


def test_recurrent_gains_and_shifts_also_apply_to_norms_that_parametrize_them_differently():
    norm = network("norm=rms", "norm.one_plus=true", "model.gain=0.1").recurrent.layers[0]
    x = inputs()[0][..., :1].expand(-1, -1, 4 * DIM)
    plain = make_norm("rms", 4 * DIM).double()(x)
    torch.testing.assert_close(norm.input_norm(x), 0.1 * plain, rtol=1e-6, atol=1e-7)
    learned = dict(network("norm=prepbn").recurrent.layers[0].named_parameters())
    assert not [name for name in learned if "hidden_norm" in name and "bias" in name]
