"""A study's file describes its published runs: their planned values are those of the records."""

from dataclasses import replace

import pytest
from msgspec import structs

from normlab.errors import UserError
from normlab.publishing import plan, verification
from normlab.publishing.plan import check_plan
from normlab.publishing.verification import verify
from normlab.records.packed import RECORDS
from normlab.studies.load import load_study
from tests.test_architecture import ROOT

RESULTS = ROOT / "results"
OTHERS = ("cards", "health")
FOLDERS = [path.parent for path in sorted(RESULTS.glob(f"*/*/{RECORDS}"))]


def planning(monkeypatch, name, scale, *, rows=(), rates=(), overrides=()):
    """Let the plan of a study have other rows, rates and overrides at a scale."""
    study = load_study(name)
    size = study.scale(scale)
    more = {place: (rate,) for place, rate in dict(rates).items()}
    size = structs.replace(
        size, overrides=(*size.overrides, *overrides), rates={**size.rates, **more}
    )
    changed = replace(
        study, rows={**study.rows, **dict(rows)}, scales={**study.scales, scale: size}
    )
    monkeypatch.setattr(plan, "load_study", lambda _: changed)
    return RESULTS / name / scale


@pytest.mark.parametrize("folder", [f for f in FOLDERS if f.parent.name not in OTHERS], ids=str)
def test_the_committed_runs_have_the_values_that_their_studies_plan(folder):
    check_plan(folder)


@pytest.mark.parametrize(
    ("name", "changes", "problem"),
    [
        (
            "batching",
            {"rates": {"ln @ batching=bucket": "optim.lr=1e-3"}},
            "optim.lr=0.001 is planned for `ln @ batching=bucket`, whose published runs have 0.002",
        ),
        (
            "repaired",
            {"overrides": ["budget.steps=3000"]},
            "budget.steps=3000 is planned for `ln` (and 8 more), whose published runs have 2000",
        ),
        (
            "repaired",
            {"rows": {"mabn": ("norm=mabn", "norm.center_weights=false")}},
            "norm.center_weights=false is planned for `mabn`, whose published runs have true",
        ),
        (
            "repaired",
            {"rows": {"brn": ("norm=bn",)}},
            "norm=bn is planned for `brn`, whose published runs have brn",
        ),
        (
            "norm_optimizer",
            {"overrides": ["model.tied=false"]},
            "model.tied=false is planned for",
        ),
        (
            "unlike_features",
            {"rows": {"ln after scaling": ("norm=ln", "sites={input:{norm:bn,affine:false}}")}},
            "sites.input.affine=false is planned for `ln after scaling",
        ),
    ],
)
def test_an_edited_plan_is_reported_with_file_key_row_and_both_values(
    monkeypatch, name, changes, problem
):
    folder = planning(monkeypatch, name, "small", **changes)
    with pytest.raises(UserError) as caught:
        check_plan(folder)
    line = str(caught.value).splitlines()[0]
    assert line.startswith(f"{ROOT}/configs/study/{name}.yaml: at scale=small, {problem}")
    assert f"remove {folder} and publish again" in line


@pytest.mark.parametrize(
    "override",
    [
        *("budget.steps=2000.0", "precision=auto", "device=cuda", "seed=7", "data_dir=elsewhere"),
        *("observe.log_every=1", "probe=[tid]", "task.corpus.data_dir=null", "model.bias=true"),
    ],
)
def test_other_spellings_and_keys_that_are_not_of_the_experiment_are_not_reported(
    monkeypatch, override
):
    check_plan(planning(monkeypatch, "repaired", "small", overrides=[override]))


def test_an_alias_of_a_norm_is_its_option(monkeypatch):
    check_plan(planning(monkeypatch, "repaired", "small", rows={"bn": ("norm=BatchNorm",)}))


@pytest.mark.parametrize("ours", [True, False])
def test_verify_reports_an_edited_plan_of_our_own_results(monkeypatch, ours):
    planning(monkeypatch, "repaired", "small", overrides=["budget.steps=3000"])
    if not ours:  # published by a command with an override, which a folder of one's own may have
        monkeypatch.setattr(verification, "RESULTS", ROOT)
    up_to_date, problems = verify(RESULTS, "repaired")
    assert bool(up_to_date) != ours
    assert ["budget.steps=3000" in line for line in problems] == [True] * ours
