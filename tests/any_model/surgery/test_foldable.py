"""The reasons why a norm stays, each of which names the module that is in the way."""

import pytest
import torch
from torch import nn

import normlab
from normlab.any_model.surgery.flow import Flow
from normlab.any_model.surgery.foldable import why_gain_stays, why_mean_stays

D = 4


class Block(nn.Module):
    """Two linear layers with a layer norm between them, run by a function of the block."""

    def __init__(self, run):
        super().__init__()
        self.first, self.second = nn.Linear(D, D), nn.Linear(D, D, bias=False)
        self.norm, self.run = nn.LayerNorm(D), run

    def forward(self, x):
        return self.run(self, x)


def reasons(run):
    """Return why the mean and the gain of a block's norm stay, or None for what can be folded."""
    model = Block(run)
    flow = Flow(model, ["norm"])
    flow.run(lambda: model(torch.ones(2, 3, D)))
    mean = why_mean_stays(flow, "norm", model, {"norm"})
    return mean, why_gain_stays(flow, "norm", model, bias=None)


def test_a_norm_between_two_linear_layers_folds_into_both():
    assert reasons(lambda m, x: m.second(m.norm(m.first(x)))) == (None, None)


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (lambda m, x: m.norm(m.first(x).relu()), "contains the result of relu"),
        (lambda m, x: m.norm(m.norm(m.first(x))), "norm is called 2 times"),
        (lambda m, x: (y := m.first(x)) + m.norm(y), "the sum with first.weight is an output"),
        (lambda m, x: m.norm(y := m.first(x)) + m.second(y), "linear in second reads the sum with"),
    ],
    ids=["activation", "two calls", "residual output", "second reader"],
)
def test_the_mean_stays_if_anything_else_sees_it(run, reason):
    assert reason in (reasons(run)[0] or "")


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (lambda m, x: m.norm(m.first(x)), "its output is an output of the model"),
        (lambda m, x: m.second(m.norm(x).relu()), "relu reads its output"),
        (lambda m, x: m.second(m.norm(x)) + m.second(x), "second.weight is also read by linear"),
        (lambda m, x: m.second(x) + 0 * m.norm(x)[..., :1].sum(), "reads its output"),
    ],
    ids=["output", "activation", "shared weight", "no product"],
)
def test_the_gain_stays_unless_only_products_read_the_output(run, reason):
    assert reason in (reasons(run)[1] or "")


def test_a_bias_is_folded_only_into_products_that_can_take_one():
    model = Block(lambda m, x: m.second(m.norm(m.first(x))))
    flow = Flow(model, ["norm"])
    flow.run(lambda: model(torch.ones(2, 3, D)))
    assert why_gain_stays(flow, "norm", model, bias=torch.ones(D)) is None
    model.second = nn.ParameterDict({"weight": model.second.weight})  # not a linear layer
    reason = why_gain_stays(flow, "norm", model, bias=torch.ones(D))
    assert reason == "second.weight has no bias that could take the norm's"


class Experts(nn.Module):
    """A table, a norm and two experts; a batch chooses the expert and whether to add segments."""

    def __init__(self):
        super().__init__()
        self.words, self.segments = nn.Embedding(9, D), nn.Embedding(2, D)
        self.norm, self.experts = nn.LayerNorm(D), nn.ModuleList(nn.Linear(D, 2) for _ in range(2))

    def forward(self, ids, expert, segments=None):
        x = self.words(ids)
        x = x if segments is None else x + self.segments(segments)
        return self.experts[expert](self.norm(x))


IDS = torch.arange(6).view(2, 3)


def outcomes(*batches):
    """Return the row of the norm of `Experts`, folded with some batches."""
    (row,) = normlab.fold_norms(Experts(), [*batches]).table
    return str(row.mean), str(row.gain)


def test_a_norm_stays_if_a_weight_that_may_read_it_or_add_to_its_input_is_not_used():
    cure = "pass a batch that uses it, or remove it from the model if it is never used"
    assert outcomes((IDS, 0)) == (
        f"stays: segments.weight was not used, but may add to its input; {cure}",
        f"stays: experts.1.weight was not used, but may read its output; {cure}",
    )


def test_an_unused_parameter_of_a_module_with_used_weights_does_not_keep_a_norm():
    model = Block(lambda m, x: m.second(m.norm(m.first(x))))
    model.mask_token, model.table = nn.Parameter(torch.ones(1, 1, D)), nn.Parameter(torch.eye(D))
    (row,) = normlab.fold_norms(model, torch.ones(2, 3, D)).table
    assert (str(row.mean), str(row.gain)) == ("folded", "folded")


def test_an_unused_parameter_in_a_list_with_used_ones_keeps_a_norm():
    model = Block(lambda m, x: m.norm(m.first(x)) @ m.experts[0])
    del model.second
    model.experts = nn.ParameterList(torch.ones(D, 2) for _ in range(2))
    (row,) = normlab.fold_norms(model, torch.ones(2, 3, D)).table
    assert "experts.1 was not used" in str(row.gain)


def test_all_batches_show_what_reads_a_norm_and_are_compared():
    assert outcomes((IDS, 0), (IDS, 1, IDS % 2)) == ("folded", "folded")
    model = Experts()
    model.experts[1].forward = lambda x: x.relu()
    (row,) = normlab.fold_norms(model, [(IDS, 0, IDS % 2), (IDS, 1)]).table
    assert row.gain is not None and "relu" in row.gain.why_not


@pytest.mark.parametrize("second", [nn.LayerNorm(D), nn.RMSNorm(D), nn.BatchNorm1d(D)])
def test_a_norm_stays_if_another_norm_that_no_batch_uses_may_take_its_place(second):
    def run(model, x, domain=0):
        norm = (model.norm, model.other)[domain]
        return model.second(norm(model.first(x).flatten(0, 1)))

    model = Block(run)
    model.other = second
    (row,) = normlab.fold_norms(model, torch.ones(2, 3, D)).table
    assert "other was not used, but may read its input or add to it" in str(row.mean)
    assert "other was not used, but the same weights may read it" in str(row.gain)


class NormOfTwo(nn.LayerNorm):
    """A layer norm that does something with a second tensor, if it gets one."""

    def __init__(self, combine):
        super().__init__(D)
        self.combine = combine

    def forward(self, x, other=None):
        return super().forward(x) if other is None else self.combine(super().forward, x, other)


@pytest.mark.parametrize(
    "combine",
    [
        lambda norm, x, other: norm(x + other),
        lambda norm, x, other: norm(x) + other,
        lambda norm, x, other: norm(x) * (1 + other),
        lambda norm, x, other: (norm(x + other), x + other)[0],
    ],
    ids=["residual", "bias", "gate", "fused residual"],
)
def test_a_norm_that_takes_two_tensors_stays_and_the_others_fold(combine):
    def run(model, x):
        y = model.norm(model.first(x))
        return model.second(model.two(model.between(y), y))

    model = Block(run)
    model.two, model.between = NormOfTwo(combine), nn.Linear(D, D)
    for weight in model.parameters():
        weight.data += 0.3 * torch.randn(weight.shape)
    folded = normlab.fold_norms(model, torch.randn(2, 3, D))
    norm, two = sorted(folded.table, key=lambda row: row.site)
    assert norm.mean is not None and norm.mean.folded
    assert str(norm.gain) != "folded" and folded.error < 1e-9
    assert str(two.mean) == str(two.gain) == "stays: two takes several tensors"


def test_an_unused_norm_over_another_number_of_features_does_not_keep_a_norm():
    model = Block(lambda m, x: m.second(m.norm(m.first(x))))
    model.other = nn.LayerNorm(D + 1)
    (row,) = normlab.fold_norms(model, torch.ones(2, 3, D)).table
    assert (str(row.mean), str(row.gain)) == ("folded", "folded")


def test_an_unused_module_outside_the_block_that_runs_a_norm_does_not_keep_its_gain():
    block = Block(lambda m, x: m.second(m.norm(m.first(x))))
    model = nn.ModuleDict({"block": block, "tower": nn.Linear(D, D)})
    (row,) = normlab.fold_norms(
        model, torch.ones(2, 3, D), forward=lambda model, x: model["block"](x)
    ).table
    assert row.gain is not None and row.gain.folded
    assert row.mean is not None and "tower.weight was not used" in row.mean.why_not
