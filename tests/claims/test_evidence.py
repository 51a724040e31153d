"""The planned runs that a selection may match, and the saved findings of checks."""

import pytest

from normlab.claims.evidence import CheckFinding, PlannedRuns, read_computed, to_json
from normlab.studies.load import load_study
from tests.claims.handmade_study import STUDY, configs


@pytest.mark.parametrize(
    ("text", "other", "norm", "rows"),
    [
        ("optim.lr=5e-4", "optim.lr=5e-4, clip_grad=1", "bn", {"bn"}),  # no norm for a single site
        (
            "[norm=bn]",
            "[norm@encoder_norm=bn]",
            "bn+ln",
            {"bn"},
        ),  # the decoder has the default norm
        ("[norm=bn]", '[norm=bn, "sites={{final:{{norm:rms}}}}"]', "bn+final_rms", {"bn"}),
        ("[norm=bn]", '[norm=bn, "sites={{final:{{norm:rms}}}}"]', "bn", set()),
    ],
)
def test_may_choose_returns_the_rows_whose_runs_match(tmp_path, text, other, norm, rows):
    (configs(tmp_path) / "study" / "made.yaml").write_text(
        STUDY.replace(text, other).format(grid="{}")
    )
    plan = PlannedRuns(load_study("made", tmp_path), "small")
    assert plan.may_choose({"norm": norm}) == rows and not plan.may_choose({"optim.lr": 1e-3})


@pytest.mark.parametrize(
    ("study", "scale", "where", "rows"),
    [
        ("placement_depth", "long", {"norm": "none", "placement": "pre"}, {"none"}),
        ("detached", "small", {"norm": "ln", "norm.detach": "both"}, {"detached"}),
        ("padding", "small", {"norm": "bn", "norm.padding": "include"}, {"bn, padding counted"}),
        (
            "modern_block_rates",
            "small",
            {"norm": "dyt+embedding_dyt+final_ln"},
            {"dyt, final norm ln"},
        ),
    ],
)
def test_only_runs_that_match_are_to_be_measured(study, scale, where, rows):
    part = PlannedRuns(load_study(study), scale).smallest_part([where])
    assert {row for row, _ in part.places} == rows, (
        "a row that leaves a key at another default is not run"
    )


def test_check_findings_are_saved_with_rounded_numbers(tmp_path):
    pieces = [CheckFinding("q", "f", "supports", {"moved": 0.2123456, "noise": 3e-17})]
    path = tmp_path / "computed.json"
    path.write_text(to_json({"a.b": pieces}))
    (piece,) = read_computed(path)["a.b"]
    assert piece.numbers == {"moved": 0.2123, "noise": 0.0} and piece.question == "q"
    assert read_computed(tmp_path / "nothing.json") == {}
    path.write_text(to_json({"a.b": [CheckFinding("q", "f", "supports", {"count": 109_482_240})]}))
    again = to_json(read_computed(path))
    assert read_computed(path)["a.b"][0].numbers == {"count": 109_482_240}, "a count is exact"
    assert again == path.read_text(), "also if the file is written again without new checks"
    path.write_text("{")
    with pytest.raises(ValueError, match=r"damaged .*; recreate it with .* --write"):
        read_computed(path)
