"""Which two runs of one seed may be compared, and how the seeds of an experiment are averaged."""

import math
import re
from pathlib import Path

import pytest
import yaml

from normlab.config.folders import CONFIG_DIR
from normlab.config.schema import REPEATS
from normlab.records.pairs import (
    Experiment,
    Pairing,
    PairRules,
    Summary,
    why_not_paired,
)
from normlab.records.record import arithmetic_of
from normlab.records.store import RunStore, select
from tests.records.examples import SIGNATURE, record

RESULTS = Path(__file__).resolve().parents[2] / "results"
HERE = {"device": "A CPU", "device_type": "cpu", "instruction_set": "AVX512-BF16"}


def made(norm="ln", *, precision="fp32", named=None, environment=None, **changes):
    return record(
        norm=norm,
        precision=named or precision,
        environment={**HERE, "precision": precision, **(environment or {})},
        **changes,
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"environment": {"device": "Another CPU"}}, None),
        (
            {"environment": {"instruction_set": "AVX2"}},
            "different arithmetic (cpu fp32 AVX512-BF16; cpu fp32 AVX2)",
        ),
        ({"environment": {"device_type": "cuda"}}, "different arithmetic (cpu"),
        ({"environment": {"instruction_set": None}}, "unknown (A CPU))"),
        ({"environment": {"world_size": 2}}, "different numbers of processes"),
        ({"data": {"checksums": {"train": "other"}}}, "different data (checksums)"),
        ({"data": {"source": "other"}}, "different data (source)"),
        ({"numerics": "early-01"}, "different code"),
        ({"batch_size": 8}, "different settings (batch_size)"),
        ({"model": {"option": "tiny", "dim": 4}}, "different settings (model.dim, model.option)"),
    ],
)
def test_two_runs_are_paired_only_if_nothing_but_the_norm_differs(changes, reason):
    found = why_not_paired(made(), made("bn", **changes), PairRules(may_differ=("norm",)))
    assert found == reason if reason is None else reason in found


def test_a_pairing_contains_pairs_reasons_and_the_seeds_of_only_one_side():
    def runs(norm, *seeds, **changes):
        return [record(norm=norm, seed=n, bleu=20.0 + n, **changes) for n in seeds]

    others = [*runs("bn", 2, 4), *runs("bn", 3, data={"source": "other"})]
    pairing = Pairing.of(runs("ln", 1, 2, 3), others, PairRules())
    assert [*pairing.pairs] == [2] and pairing.alone == {1, 4}
    assert pairing.reasons == {3: "different data (source)"}
    assert pairing.differences("test/bleu") == {2: 0.0} and pairing.differences("test/chrf") == {}


def test_keys_that_are_compared_may_differ():
    ln, other = made(), made("bn", batch_size=8, numerics=2, data={"source": "other"})
    assert why_not_paired(ln, other, PairRules(may_differ=("norm", "task"))) == "different code"
    assert why_not_paired(ln, other, PairRules(code=False)) == "different data (source)"
    assert (
        why_not_paired(ln, other, PairRules(code=False, may_differ=("norm", "task", "batch_size")))
        is None
    )


def test_a_key_that_repeats_a_compared_key_may_differ_but_no_other_key_may():
    slow = made(optim={"lr": 1e-3}, schedule={"lr": 1e-3, "warmup": 4})
    fast = made(optim={"lr": 2e-3}, schedule={"lr": 2e-3, "warmup": 4})
    assert why_not_paired(slow, fast, PairRules(may_differ=("optim.lr",))) is None
    longer = made(optim={"lr": 2e-3}, schedule={"lr": 2e-3, "warmup": 5})
    found = why_not_paired(slow, longer, PairRules(may_differ=("optim.lr",)))
    assert found == "different settings (schedule.warmup)"


def test_a_key_that_only_happens_to_equal_a_compared_key_may_not_differ():
    small = made(batch_size=32, model={"dim": 32})
    large = made(batch_size=64, model={"dim": 64})
    found = why_not_paired(small, large, PairRules(may_differ=("batch_size",)))
    assert found == "different settings (model.dim)"


def interpolated(node, prefix):
    """Return the source of each key whose value is another key's, such as `${batch_size}`."""
    if isinstance(node, dict):
        parts = [interpolated(value, f"{prefix}.{key}") for key, value in node.items()]
        return {key: source for part in parts for key, source in part.items()}
    source = re.fullmatch(r"\$\{([\w.]+)\}", node) if isinstance(node, str) else None
    return {prefix: source[1]} if source else {}


def test_repeats_lists_the_keys_that_options_repeat():
    repeated = {}
    for group in ("model", "schedule", "task"):
        for path in (CONFIG_DIR / group).rglob("*.yaml"):
            prefix = ".".join(path.parent.relative_to(CONFIG_DIR).parts)
            repeated |= interpolated(yaml.safe_load(path.read_text("utf-8")), prefix)
    of_own_tasks = {"task.data_dir": "data_dir"}  # a user's task may read its data itself
    assert repeated | of_own_tasks == REPEATS


def test_records_without_an_instruction_set_pair_only_on_the_same_device():
    old = {"instruction_set": None}
    assert why_not_paired(made(environment=old), made("bn", environment=old), PairRules()) is None
    other = made("bn", environment={**old, "device": "Another CPU"})
    assert why_not_paired(made(environment=old), other, PairRules()) is not None


def test_runs_whose_configs_set_different_precisions_are_paired():
    assert why_not_paired(made(), made(precision="bf16"), PairRules()) is None
    other = made(precision="bf16", environment={"instruction_set": "AVX2"})
    assert "different arithmetic" in why_not_paired(made(), other, PairRules())


def test_runs_with_precision_auto_are_paired_by_the_precision_it_resolved_to():
    other = made(precision="bf16", named="auto")
    assert why_not_paired(made(), other, PairRules()) is not None
    assert why_not_paired(made(), other, PairRules(precision=False)) is None
    assert why_not_paired(made(), made(named="auto"), PairRules()) is None


def test_published_runs_with_precision_auto_share_one_arithmetic():
    published = [kept for _, kept in RunStore(RESULTS / "bert_norms").entries()]
    records = select(published, {"precision": "auto"})
    assert {arithmetic_of(record.environment) for record in records} == {
        ("cpu", "bf16", "unknown (AMD EPYC)")
    }


# The seeds of one experiment --------------------------------------------------------------------


def test_scores_are_averaged_over_finished_seeds_only():
    cell = Experiment.of(
        [
            record(seed=3, bleu=33.0),
            record(seed=1, bleu=30.0),
            record(seed=2, bleu=0.0, status="diverged", spikes=9.0),
        ]
    )
    score = Summary.of([*cell.values("test/bleu").values()])
    assert (score.mean, score.n) == (31.5, 2)
    assert score.sd == pytest.approx(3 / math.sqrt(2))  # two values 3 apart, n - 1
    assert [record.seed for record in cell.records] == [1, 2, 3]
    assert cell.outcome == "diverged 1/3"
    assert cell.signature("test/bleu") == SIGNATURE


@pytest.mark.parametrize(
    ("statuses", "said"),
    [
        (["finished"] * 3, "finished 3/3"),
        (["finished", "diverged", "diverged"], "diverged 2/3"),
        (["failed", "interrupted", "finished"], "failed 1/3, interrupted 1/3"),
    ],
)
def test_the_outcome_of_an_experiment_counts_its_unfinished_runs(statuses, said):
    runs = [record(seed=seed, status=status) for seed, status in enumerate(statuses)]
    assert Experiment.of(runs).outcome == said


def test_one_seed_has_no_standard_deviation_and_unscored_runs_have_no_values():
    assert Summary.of([30.0]).sd is None
    assert Experiment.of([record(status="diverged")]).values("test/bleu") == {}
    assert Experiment.of([record(bleu=None)]).values("test/bleu") == {}
    assert Experiment.of([record()]).values("test/chrf") == {}


@pytest.mark.parametrize(
    ("other", "key"),
    [
        ({"data": {"checksums": {"train": "xyz"}}}, "data.checksums"),
        ({"data": {"source": "elsewhere"}}, "data.source"),
        ({"data": {"sizes": {"train": 5}}}, "data.sizes"),
        ({"environment": {"precision": "bf16"}}, "environment.precision"),
        ({"environment": {"world_size": 2}}, "environment.world_size"),
        ({"params": 1001}, "params"),
    ],
)
def test_runs_that_are_not_comparable_are_not_averaged(other, key):
    with pytest.raises(ValueError, match=f"seed1 and .*seed2 are not comparable: {key}"):
        Experiment.of([record(seed=1), record(seed=2, **other)])


def test_scores_with_different_signatures_are_not_averaged():
    cell = Experiment.of([record(seed=1), record(seed=2, signature="tok:none")])
    with pytest.raises(ValueError, match=r"test/bleu was computed in several ways \(nrefs.*none"):
        cell.scores("test/bleu")
