"""The stability probes, compared with cases worked out by hand or with another formula."""

import math
import re
from functools import partial

import pytest
import torch
from scipy.stats import kurtosis
from torch import Tensor, nn

from normlab.models.layers import initialize
from normlab.models.recurrent import LstmArchitecture, Recurrent
from normlab.models.resnet import Convolution
from normlab.norms.base import Norm
from normlab.norms.batch import BatchNorm
from normlab.norms.layer import NoNorm
from normlab.norms.make import make_norm
from normlab.norms.tokens import Tokens
from normlab.placements.base import Norms, Residual
from normlab.probes.activations import (
    Activations,
    AttentionWeights,
    Branches,
    Drift,
    ResidualStream,
    describe,
    describe_attention,
    describe_branch,
    drift,
    moments,
    root_mean_square,
)
from normlab.probes.base import Probe, ProbeGroup, StepView
from normlab.probes.gradients import Gradients, Updates
from normlab.probes.independence import (
    Independence,
    correlation_at_positions,
    drawn,
    intraclass_correlation,
)
from normlab.probes.sites import layer, modules_by_site, sublayer_kinds
from normlab.probes.statistics import (
    Fluctuation,
    Padding,
    Statistics,
    StatisticsGradient,
    TrainInferenceDiscrepancy,
    discrepancy,
    statistics_gradient,
)
from tests.models.small import (
    Words,
    architecture,
    logits,
    norms,
    placement,
    sentences,
    seq2seq,
)

LENGTHS = [4, 5, 2], [3, 6, 4]


def view(step: int, model: nn.Module) -> StepView:
    one = torch.tensor(1.0)
    return StepView(step, model, one, one, 0.1, padding_share=0.25)


def observed(probe: Probe, model: nn.Module, *, steps: int = 1, seed: int = 0) -> dict[str, float]:
    """Take plain gradient steps with one probe; return the last step's row."""
    group = ProbeGroup({"p": probe})
    group.attach(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    row: dict[str, float] = {}
    for step in range(1, steps + 1):
        group.before_forward(step)
        source, _ = sentences(LENGTHS[0], seed=seed + step)
        target, _ = sentences(LENGTHS[1], seed=seed + step + 99)
        optimizer.zero_grad()
        logits(model, source, target).square().mean().backward()
        seen = view(step, model)
        group.before_update(seen)
        optimizer.step()
        group.after_update(seen)
        row = group.metrics()
    return {name.removeprefix("stability/p/"): value for name, value in row.items()}


# Names ------------------------------------------------------------------------------------------


LAYERS = {
    "encoder.layers.0.self_attention.qkv_proj.weight": "encoder.0",
    "decoder.layers.10.feed_forward.fc2.bias": "decoder.10",
    "encoder.embedding.tokens.weight": "encoder.embedding",
    "encoder.final_norm.weight": "encoder.final",
    "output.weight": "output",
}


def test_site_names_match_the_configs_paths_and_every_parameter_maps_to_a_layer():
    given = norms("ln", ("*.inner", partial(make_norm, "bn")), ("*.q", partial(make_norm, "rms")))
    model = architecture().build(Words().spec(), placement("post"), given)
    found = {path for path, norm in given.places.items() if norm is not None}
    assert found - set(modules_by_site(model, Norm)) == set() and "encoder.0.ffn.inner" in found
    assert {"decoder.1.cross", "encoder.0.ffn"} <= set(modules_by_site(model, Residual))
    assert all(m.path in repr(m) for m in modules_by_site(model, BatchNorm).values())
    assert {name: layer(name) for name in LAYERS} == LAYERS


def test_every_parameter_has_a_sublayer_kind_and_site_names_are_unique():
    model = seq2seq("bn", "post", share_embeddings="none")
    kinds = sublayer_kinds(model)
    assert kinds.keys() == dict(model.named_parameters()).keys()
    assert set(kinds.values()) == {"attention", "feed_forward", "norm", "embedding"}
    assert kinds["encoder.layers.0.self_residual.norm.weight"] == "norm"
    assert kinds["decoder.layers.0.cross_attention.kv_proj.weight"] == "attention"
    assert kinds["output.weight"] == "embedding"
    norms = [m for m in model.modules() if isinstance(m, type(model.encoder.final_norm))]
    assert len(modules_by_site(model, type(model.encoder.final_norm))) == len(norms)


# Sub-layers and drift ---------------------------------------------------------------------------


def test_the_crest_of_a_branch_is_its_largest_real_value_over_the_root_mean_square():
    x = torch.tensor([[[3.0, -1.0], [1.0, 1.0], [50.0, 0.0]]])
    found = describe_branch(x, torch.tensor([[True, True, False]]))
    assert float(found["rms"]) == pytest.approx(math.sqrt(12 / 4))
    assert float(found["crest"]) == pytest.approx(3 / math.sqrt(3))


def test_the_branches_probe_measures_attention_and_feed_forward_branches():
    model = seq2seq("ln", "pre").train()
    row = observed(Branches(every=1), model)
    places = {name.removeprefix("crest/") for name in row if name.startswith("crest/")}
    residuals = set(modules_by_site(model, Residual))
    assert places == residuals | {"attention", "feed_forward"}
    ffn = [value for name, value in row.items() if re.fullmatch(r"crest/.*ffn", name)]
    assert row["crest/feed_forward"] == pytest.approx(sum(ffn) / len(ffn))
    both = [row[f"crest/{place}"] for place in residuals]
    assert row["crest"] == pytest.approx(sum(both) / len(both))


def test_the_branches_probe_measures_a_convolution_over_all_its_pixels():
    model = Convolution(3, 5, size=3)
    model.initialize(torch.Generator().manual_seed(0))
    probe = Branches(every=1)
    probe.attach(nn.Sequential(model))
    probe.before_forward(1)
    pictures = torch.randn(2, 3, 8, 8)
    out = model(pictures).detach()
    seen = view(1, model)
    probe.before_update(seen)
    found = {name.removeprefix("stability/"): value for name, value in seen.collected.items()}
    crest = float(out.abs().max() / out.square().mean().sqrt())
    assert float(found["crest/convolution"]) == pytest.approx(crest)


def test_drift_is_the_squared_change_of_mean_and_deviation_over_the_variance():
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(50, 40, 8, generator=draw, dtype=torch.float64)
    valid = torch.rand(50, 40, generator=draw) < 0.7
    before, after = moments(x, valid), moments(3 * x + 2, valid)
    torch.testing.assert_close(before[1], x[valid].std(0, correction=0))
    found = drift(before, after)
    shift = (2 + 2 * before[0]).square().sum() / (9 * before[1].square()).sum()
    assert float(found["mean"]) == pytest.approx(float(shift))
    assert float(found["deviation"]) == pytest.approx(4 / 9)


def test_drift_needs_two_measurements():
    model = seq2seq("none", "pre").train()
    assert observed(Drift(every=1), model) == {}
    row = observed(Drift(every=1), model, steps=2)
    assert set(modules_by_site(model, Residual)) == {
        n.removeprefix("mean/") for n in row if "mean/" in n
    }


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


# Gradients and updates --------------------------------------------------------------------------


def test_squared_gradient_norms_by_layer_and_by_kind_each_sum_to_the_total():
    model = seq2seq("ln", "pre").train()
    row = observed(Gradients(every=1), model)
    whole = sum(float(p.grad.square().sum()) for p in model.parameters() if p.grad is not None)
    for prefix in ("norm/", "kind/"):
        parts = [value**2 for name, value in row.items() if name.startswith(prefix)]
        assert sum(parts) == pytest.approx(whole, rel=1e-6)
    encoder_0 = [
        p.grad.square().sum()
        for name, p in model.named_parameters()
        if name.startswith("encoder.layers.0.") and p.grad is not None
    ]
    assert row["norm/encoder.0"] == pytest.approx(float(torch.stack(encoder_0).sum().sqrt()))
    layers = [value for name, value in row.items() if re.fullmatch(r"norm/\w+\.\d+", name)]
    assert len(layers) > 2
    assert row["spread"] == pytest.approx(max(layers) / min(layers))


def test_the_update_ratio_of_sgd_is_learning_rate_times_gradient_norm_over_weight_norm():
    model = seq2seq("ln", "pre").train()
    before = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    row = observed(Updates(every=1), model)
    after = nn.utils.parameters_to_vector(model.parameters()).detach()
    assert row["ratio"] == pytest.approx(float((after - before).norm() / before.norm()))
    gradient = nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
    assert row["ratio"] == pytest.approx(0.01 * float(gradient / before.norm()))
    assert {"ratio/attention", "ratio/feed_forward", "ratio/norm", "ratio/embedding"} < set(row)


# Activations and the residual stream ------------------------------------------------------------


def test_activation_metrics_use_only_real_tokens():
    x = torch.tensor([[[1.0, 3.0], [100.0, 100.0]], [[-5.0, 1.0], [0.0, 2.0]]])
    valid = torch.tensor([[True, False], [True, True]])
    found = describe(x, valid, threshold=1.2)
    values = torch.tensor([1.0, 3.0, -5.0, 1.0, 0.0, 2.0])
    assert float(found["mean"]) == pytest.approx(float(values.mean()))
    assert float(found["var"]) == pytest.approx(float(values.var(correction=0)))
    assert float(found["kurtosis"]) == pytest.approx(kurtosis(values.numpy()))
    assert float(found["largest"]) == 5.0
    # The features' root mean squares are sqrt(26/3) and sqrt(14/3), that of all values sqrt(20/3):
    # only the first feature exceeds it by a factor of 1.1.
    assert float(found["outliers"]) == 0.0
    assert float(describe(x, valid, threshold=1.1)["outliers"]) == 0.5


def test_the_variance_of_activations_far_from_zero_is_accurate():
    x = torch.randn(4, 50, 16, generator=torch.Generator().manual_seed(0)) + 3000
    valid = torch.arange(50)[None] < torch.tensor([50, 3, 20, 41])[:, None]
    found = describe(x, valid, threshold=6.0)
    expected = x[valid].double().var(correction=0)
    torch.testing.assert_close(found["var"].double(), expected, rtol=1e-3, atol=0)


def test_the_residual_stream_is_measured_after_each_branch():
    model = seq2seq("ln", "pre").train()
    row = observed(ResidualStream(every=1), model)
    assert [name for name in row if name.startswith("rms/encoder")] == [
        "rms/encoder.0.self",
        "rms/encoder.0.ffn",
        "rms/encoder.1.self",
        "rms/encoder.1.ffn",
    ]
    growth = [
        row[f"rms/{stack}.1.ffn"] / row[f"rms/{stack}.0.self"] for stack in ("encoder", "decoder")
    ]
    assert row["growth"] == pytest.approx(sum(growth) / 2)
    x = torch.tensor([[[3.0, 4.0], [9.0, 9.0]]])
    assert float(root_mean_square(x, torch.tensor([[True, False]]))) == pytest.approx(12.5**0.5)


# Attention --------------------------------------------------------------------------------------


def one_head(logit_rows: list[list[float]]) -> tuple[Tensor, Tensor]:
    """Return queries and keys [1, 1, P, S] whose logits are the given rows."""
    scores = torch.tensor(logit_rows)
    size = scores.shape[1]
    key = torch.eye(size)[None, None]
    return (scores * math.sqrt(size))[None, None], key


@pytest.mark.parametrize(
    ("logits", "wanted"),  # entropy, largest, saturated, slope
    [([[0.0] * 4], (1.0, 0.0, 0.0, 0.75)), ([[1000.0, 5.0, 2.0]], (0.0, 1000.0, 1.0, 0.0))],
)
def test_attention_metrics_are_right_for_uniform_attention_and_for_a_dominant_logit(logits, wanted):
    found = describe_attention(*one_head(logits), None, torch.tensor([[True]]), threshold=0.99)
    values = (float(found[name]) for name in ("entropy", "largest", "saturated", "slope"))
    assert [*values] == pytest.approx(wanted, abs=1e-6)


def test_masked_keys_padded_queries_and_rows_with_one_key_do_not_count():
    rows = [[0.0, 50.0, 80.0], [0.0, 0.0, 90.0], [2.0, 1.0, 0.0], [70.0, 0.0, 0.0]]
    query, key = one_head(rows)
    causal = torch.ones(4, 3, dtype=torch.bool).tril()
    valid = torch.tensor([[True, True, True, False]])
    found = describe_attention(query, key, causal, valid, threshold=0.99)
    p = torch.tensor([2.0, 1.0, 0.0]).softmax(0)
    entropy = float(-(p * p.log()).sum() / math.log(3))
    assert float(found["entropy"]) == pytest.approx((1.0 + entropy) / 2)  # the second is uniform
    assert float(found["slope"]) == pytest.approx((0.5 + 1 - float(p.square().sum())) / 2)
    assert float(found["largest"]) == pytest.approx(2.0)
    assert float(found["saturated"]) == 0.0


def test_the_attention_probe_measures_every_attention_of_a_translation_model():
    row = observed(AttentionWeights(every=1, threshold=0.99), seq2seq("ln", "pre").train())
    seen = [name.removeprefix("entropy/") for name in row if name.startswith("entropy/")]
    layers = [f"{stack}.{i}" for stack in ("encoder", "decoder") for i in (0, 1)]
    expected = [f"{name}.self" for name in layers] + [f"decoder.{i}.cross" for i in (0, 1)]
    assert sorted(seen) == sorted(expected)


# Batch statistics -------------------------------------------------------------------------------


def statistics(**changes: list[float] | float) -> Statistics:
    """Two features: batch means 1, 2 and variances 4, 9; running means 0, 0 and variances 1, 16."""
    values = {
        "pooled": [True, True],
        "mean": [1.0, 2.0],
        "var": [4.0, 9.0],
        "mean_before": [0.0, 0.0],
        "var_before": [1.0, 16.0],
        "count": 7.0,
        **changes,
    }
    return Statistics(*map(torch.tensor, values.values()), rows=1, site="a")


def test_the_train_inference_discrepancy_matches_a_hand_computed_example():
    found = discrepancy(statistics(), eps=1e-5)
    scale = math.sqrt(1 + 16)  # of the running deviations 1 and 4
    assert float(found["mean"]) == pytest.approx(math.sqrt(1 + 4) / scale)
    assert float(found["var"]) == pytest.approx(math.sqrt((2 - 1) ** 2 + (3 - 4) ** 2) / scale)


def test_the_discrepancy_uses_the_running_statistics_from_before_the_batch():
    model = seq2seq("bn", "pre").train()
    norm = model.encoder.final_norm
    before = norm.running_mean.clone(), norm.running_var.clone()
    row = observed(TrainInferenceDiscrepancy(every=1, eps=1e-5), model)
    assert norm.last_batch is not None
    gap = norm.last_batch().mean.flatten() - before[0].flatten()
    expected = float(gap.norm() / before[1].sqrt().norm())
    assert row["mean/encoder.final"] == pytest.approx(expected)
    sited = [value for name, value in row.items() if name.startswith("mean/")]
    assert row["mean"] == pytest.approx(sum(sited) / len(sited))


def test_intraclass_correlation_separates_correlated_tokens_from_independent_ones():
    """Tokens that share half their variance have an icc of 1/2, independent ones an icc of 0."""
    generator = torch.Generator().manual_seed(1)
    own, shared = (torch.randn(200, n, 6, generator=generator) for n in (8, 1))
    for scale in (1.0, 40.0):  # of one feature: it has no effect, because features are standardized
        x = (own + shared).double() * torch.tensor([scale, *[1.0] * 5])
        assert float(intraclass_correlation(x)) == pytest.approx(0.5, abs=0.05)
        assert float(intraclass_correlation(own.double())) == pytest.approx(0, abs=0.05)


def test_the_correlation_at_positions_does_not_depend_on_sample_lengths():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(5, 4, 6, generator=generator, dtype=torch.float64)
    every = torch.ones(5, 4, dtype=torch.bool)
    of_positions = intraclass_correlation(x.transpose(0, 1))  # samples and tokens exchanged
    torch.testing.assert_close(correlation_at_positions(x, every), of_positions)
    lengths = torch.randint(3, 21, (4000,), generator=generator)
    real = torch.arange(20) < lengths[:, None]
    own, shared = (torch.randn(n, 20, 6, generator=generator).double() for n in (4000, 1))
    assert float(correlation_at_positions(own, real)) == pytest.approx(0, abs=0.01)
    x = own + shared / shared.std(1)[:, None]
    assert float(correlation_at_positions(x, real)) == pytest.approx(0.5, abs=0.1)
    padded = torch.where(real[..., None], x, 1e6)
    torch.testing.assert_close(
        correlation_at_positions(padded, real), correlation_at_positions(x, real)
    )


def test_drawn_tokens_are_real_and_come_from_samples_with_enough_tokens():
    real = torch.arange(9) < torch.tensor([3, 7, 2, 4])[:, None]
    generator = torch.Generator().manual_seed(1)
    places = drawn(real, 2, 3, generator)
    assert places is not None and (places // 9).tolist() == [[0] * 3, [1] * 3]
    assert real.flatten()[places].all() and len(set(places.flatten().tolist())) == 6
    assert drawn(real, 3, 4, generator) is None


def test_fluctuation_matches_a_hand_computed_example():
    probe = Fluctuation(every=1, window=3)
    first = probe.measure_norm(statistics())
    assert float(first["mean"]) == pytest.approx(math.sqrt(5) / 2)
    assert float(first["var"]) == pytest.approx(math.sqrt(9 + 49) / 2)
    probe = Fluctuation(every=1, window=3)
    probe.measure_norm(statistics(mean=[0.0, 0.0], var=[1.0, 2.0], count=4.0))
    found = probe.measure_norm(statistics(mean=[2.0, 0.0], var=[1.0, 4.0], count=4.0))
    assert "ratio" not in found
    found = probe.measure_norm(statistics(mean=[1.0, 3.0], var=[1.0, 6.0], count=10.0))
    # Variances between batches (n - 1): 1 and 3. Within: mean of 1 and mean of 2, 4, 6.
    ratio = (1 + 3) / (1 + 4)
    assert float(found["ratio"]) == pytest.approx(ratio)
    assert float(found["excess"]) == pytest.approx(ratio * 6)


@pytest.mark.parametrize("option", ["bn", "global"])
@pytest.mark.parametrize("padding", ["exclude", "include"])
def test_the_gradient_through_statistics_matches_autograd(option: str, padding: str):
    """The mean and the variance are leaves of the plain formula."""
    norm = make_norm(option, 4, padding=padding).double()
    nn.init.uniform_(norm.weight, 0.5, 2.0)
    x = torch.randn(3, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    valid = torch.arange(5)[None] < torch.tensor([5, 2, 4])[:, None]
    weigh = torch.randn(3, 5, 4, dtype=torch.float64) * valid[..., None]
    (norm(x, Tokens(valid)) * weigh).sum().backward()
    assert norm.last_batch is not None
    mean = norm.last_batch().mean.clone().requires_grad_()
    var = norm.last_batch().var.clone().requires_grad_()
    plain = norm.weight.detach() * (x - mean) / (var + norm.eps).sqrt() + norm.bias.detach()
    (plain * weigh).sum().backward()
    found = statistics_gradient(norm)
    assert found is not None
    assert mean.grad is not None
    assert var.grad is not None
    torch.testing.assert_close(found[0], mean.grad.flatten())
    torch.testing.assert_close(found[1], var.grad.flatten())


def test_statistics_gradients_are_measured_only_in_affine_norms_that_pool_all_tokens():
    row = observed(StatisticsGradient(every=1), seq2seq("bn", "pre").train())
    assert row["mean"] > 0
    assert row["var"] > 0
    assert "mean/encoder.final" in row
    for model in (
        seq2seq("bn_position", "pre", norm_values={"num_positions": 9}),
        seq2seq("bn", "pre", norm_values={"affine": False}),
        seq2seq("ln", "pre"),
    ):
        assert observed(StatisticsGradient(every=1), model.train()) == {}


@pytest.mark.parametrize(
    ("option", "values", "tokens"),
    [
        ("bn", {}, 11.0),
        ("bn", {"padding": "include"}, 15.0),
        ("global", {}, 11.0),
        ("bn_position", {"num_positions": 9}, 11 / 5),
    ],
)
def test_the_padding_probe_reports_tokens_per_statistic(option: str, values: dict, tokens: float):
    norm = make_norm(option, 4, **values)
    valid = torch.arange(5)[None] < torch.tensor([5, 2, 4])[:, None]
    norm(torch.randn(3, 5, 4), Tokens(valid))
    probe = Padding()
    probe.attach(nn.Sequential(norm))
    seen = view(1, norm)
    probe.before_update(seen)
    assert probe.summary()["tokens"] == pytest.approx(tokens)
    assert probe.summary()["share"] == 0.25
