"""What `normlab explain` finds out of a norm, on the documents' tensor, and how it looks."""

import json
import math
import re
from dataclasses import replace
from itertools import combinations, product

import pytest
import torch

from normlab.commands.explain import main
from normlab.config.registry import option_names, options
from normlab.inspect import subject, worked
from normlab.inspect.subject import AXES
from normlab.inspect.worked import SHAPE, by_axes, describe, explain, groups
from normlab.norms.base import Norm

DOCUMENT = torch.tensor(
    [[[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]], [[-1, 0, 1, 2], [3, 4, 5, 6], [7, 8, 9, 10]]]
).double()
CELLS = [*product(*map(range, SHAPE))]
SUBSETS = [axes for size in range(4) for axes in combinations(AXES, size)]
EXPLAINED = ["ln", "bn", "bn_position", "bn_sample", "in", "seqn", "global", "rms", "none", "gn"]


@pytest.mark.parametrize("axes", SUBSETS)
def test_groups_cut_the_block_into_equal_parts(axes):
    found = groups(by_axes(set(axes)))
    kept = [axis for axis, name in enumerate(AXES) if name not in axes]
    assert found[0] == [cell for cell in CELLS if not any(cell[axis] for axis in kept)]
    names = ", ".join(f"{('sample', 'token', 'feature')[axis]} 1" for axis in kept)
    assert describe(found[0]) == (names or "the whole block")
    assert sorted(cell for group in found for cell in group) == CELLS


@pytest.fixture(scope="module")
def explained():
    names = [*EXPLAINED, "prepbn", "pn"]
    return {option.name: explain(option) for option in options("norm") if option.name in names}


@pytest.mark.parametrize("name", EXPLAINED[:7])
def test_groups_have_the_moments_of_their_axes_and_the_outputs_follow(explained, name):
    page = explained[name]
    over = [AXES.index(axis) for axis in page.pools]
    mean = DOCUMENT.mean(over, keepdim=True)
    variances = ((DOCUMENT - mean) ** 2).mean(over).flatten().tolist()
    assert [g.mean for g in page.groups] == pytest.approx(mean.flatten().tolist())
    assert [g.var for g in page.groups] == pytest.approx(variances)
    for group in page.groups:
        for (s, t, d), x in zip(group.cells, group.values, strict=True):
            wanted = (x - group.mean) / math.sqrt(group.var + 1e-5)
            assert page.train[s][t][d] == pytest.approx(wanted, abs=1e-6)


def test_the_documents_own_numbers(explained):
    (sample, *_) = explained["bn_sample"].groups
    assert (sample.name, sample.mean) == ("token 1", 1.5)  # mean([1,2,3,4,-1,0,1,2])
    assert [g.mean for g in explained["ln"].groups] == [2.5, 6.5, 10.5, 0.5, 4.5, 8.5]
    assert [g.mean for g in explained["bn"].groups] == [4, 5, 6, 7]
    center, divisor = explained["rms"].groups[0].line
    assert (center, divisor) == (
        pytest.approx(0, abs=1e-6),
        pytest.approx(math.sqrt(7.5), abs=1e-4),
    )
    assert explained["none"].train == explained["none"].x


def test_groups_smaller_than_the_axes_are_found_by_trial(explained):
    gn = explained["gn"]
    assert gn.narrower and gn.changed == {"groups": 2} and len(gn.groups) == 12
    assert gn.groups[0].name == "sample 1, token 1, features 1-2"
    assert not any(explained[name].narrower for name in ("ln", "bn", "in"))


def test_running_statistics_after_one_batch(explained):
    bn = explained["bn"]
    assert [g.entered[1] for g in bn.groups] == pytest.approx([14] * 4)  # over n - 1
    assert [g.kept[0] for g in bn.groups] == pytest.approx([0.4, 0.5, 0.6, 0.7])
    assert bn.eval[0][0][0] == pytest.approx((1 - 0.4) / math.sqrt(0.9 + 0.1 * 14 + 1e-5))
    row = explained["bn_position"].groups[4]
    assert row.name == "token 2, feature 1" and row.kept[0] == pytest.approx(0.4)
    assert explained["ln"].groups[0].kept is None and explained["ln"].train == explained["ln"].eval


def test_a_norm_that_pools_nothing_at_first_is_shown_half_way(explained):
    assert explained["prepbn"].step == 500 and "other samples" in explained["prepbn"].sees_train
    assert explained["prepbn"].sees_eval == "its own value alone"
    assert (explained["pn"].step, explained["bn"].step) == (0, None)


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("ln", "its token's features"),
        ("in", "earlier tokens, later tokens"),
        ("bn", "earlier tokens, later tokens, other samples"),
        ("bn_sample", "its token's features, other samples"),
    ],
)
def test_what_an_output_depends_on(explained, name, seen):
    page = explained[name]
    assert page.sees_train == seen
    assert page.sees_eval == ("its own value alone" if page.running else seen)


@pytest.mark.parametrize("name", ["bn", "bn_position", "bn_sample", "global"])
def test_padding_that_counts_changes_real_tokens(explained, name):
    assert explained[name].padding == {"exclude": False, "include": True, "fill": True}
    assert explained["ln"].padding == {"": False}


class PastNorm(Norm):
    """Each token less the mean of it and those before (nobody, nowhere)."""

    pools = frozenset({"position"})

    def __init__(self, dim, parts=3):
        super().__init__(dim, scale=True, shift=False)
        if dim % parts and dim != 512:
            raise ValueError(f"norm.parts={parts} does not divide {dim}")

    def forward(self, x, stream):
        count = (x[:1, :, :1] * 0 + 1).cumsum(1)
        return (x - x.cumsum(1) / count) * self.weight


def test_a_norm_that_was_added_is_explained_too(tmp_path, monkeypatch):
    (config := tmp_path / "past.yaml").write_text("_target_: PastNorm\nparts: 3\n")
    for module in (subject, worked):
        monkeypatch.setattr(module, "make_norm", lambda _, dim, **values: PastNorm(dim, **values))
    page = explain(replace(options("norm")[0], name="past", path=config))
    assert page.changed == {"parts": 2} and page.narrower
    assert page.sees_train == page.sees_eval == "earlier tokens"


def printed(capsys, *argv):
    assert main(list(argv)) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", ("none", "gn", "bn"))
def test_a_norm_is_explained_on_one_page_and_for_programs(capsys, name):
    out = printed(capsys, name)
    assert out.startswith(f"{name}: ") and f"normlab train norm={name}" in out
    assert "…" not in out and "\x1b" not in out
    found = json.loads(printed(capsys, name, "--json"))
    assert found["format"] == "normlab.explain/1" and found["norms"][0]["name"] == name


def test_the_overview_has_every_option_and_fits_a_screen(capsys):
    lines = printed(capsys).splitlines()
    for name in option_names("norm"):
        assert any(line.split()[:1] == [name] for line in lines)
    assert max(map(len, lines)) <= 80
    rows = {row["name"]: row for row in json.loads(printed(capsys, "--json"))["overview"]}
    assert rows["bn"]["running"] and rows["bn"]["pools"] == ["batch", "position"]
    assert rows["ln"]["parameters"] == {"weight": [512], "bias": [512]}


def test_several_norms_are_drawn_and_compared(capsys):
    out = printed(capsys, "ln", "bn_sample")
    lines = [line.split() for line in out.splitlines()]
    assert ["token", "1", "[*1]", "[2]", "[3]", "[4]", "[-1]", "[0]", "[1]", "[2]"] in lines
    assert ["token", "2", "5", "6", "7", "8", "3", "4", "5", "6"] in lines
    table = out[out.index("Side by side") :]
    assert re.search(r"mean, var +2\.50, 1\.25 +1\.50, 2\.25", table)
    assert re.search(r"one at a time +yes +in eval", table)


def test_images_are_drawn_by_the_axes_of_the_group_norm_paper(capsys):
    out = printed(capsys, "--images")
    drawn = {block.split()[0]: block for block in out.split("\n\n")[1:5]}
    pooled = {name: len(re.findall(r"\[\*?-?\d+\]", block)) for name, block in drawn.items()}
    assert pooled == {"bn": 6, "seqn": 12, "in": 3, "gn_sample": 6}
    assert re.search(r"seqn +layer norm +\(H, W\), C +GroupNorm\(1, C\)", out)


def test_an_unknown_norm_names_the_options():
    with pytest.raises(ValueError, match=r"no norm 'layernorm': there are .*ln"):
        main(["layernorm"])
