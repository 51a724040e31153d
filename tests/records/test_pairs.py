"""Which two runs of one seed may be compared, and what is said of others."""

from pathlib import Path

import pytest

from normlab.records.pairs import arithmetic, why_not_paired
from normlab.records.store import RunStore
from tests.records.examples import record

RESULTS = Path(__file__).resolve().parents[2] / "results"
HERE = {"device": "A CPU", "device_type": "cpu", "instruction_set": "AVX512-BF16"}


def made(norm="ln", *, precision="fp32", named=None, environment=None, **changes):
    return record(
        norm=norm,
        precision=named or precision,
        environment={**HERE, "precision": precision, **(environment or {})},
        **changes,
    )


def test_arithmetic_is_device_type_precision_and_instruction_set():
    assert arithmetic(made()) == ("cpu", "fp32", "AVX512-BF16")


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
def test_two_runs_are_paired_only_where_the_norm_is_all_that_differs(changes, reason):
    found = why_not_paired(made(), made("bn", **changes), may_differ=("norm",))
    assert found == reason if reason is None else reason in found


def test_what_is_compared_may_differ():
    ln, other = made(), made("bn", batch_size=8, numerics=2, data={"source": "other"})
    assert why_not_paired(ln, other, may_differ=("norm", "task")) == "different code"
    assert why_not_paired(ln, other, code=False) == "different data (source)"
    assert why_not_paired(ln, other, code=False, may_differ=("norm", "task", "batch_size")) is None


def test_a_key_that_repeats_a_number_which_is_compared_may_differ_and_another_may_not():
    slow = made(optim={"lr": 1e-3}, schedule={"lr": 1e-3, "warmup": 4})
    fast = made(optim={"lr": 2e-3}, schedule={"lr": 2e-3, "warmup": 4})
    assert why_not_paired(slow, fast, may_differ=("optim.lr",)) is None
    longer = made(optim={"lr": 2e-3}, schedule={"lr": 2e-3, "warmup": 5})
    found = why_not_paired(slow, longer, may_differ=("optim.lr",))
    assert found == "different settings (schedule.warmup)"


def test_records_without_an_instruction_set_pair_on_the_same_device_alone():
    old = {"instruction_set": None}
    assert why_not_paired(made(environment=old), made("bn", environment=old)) is None
    other = made("bn", environment={**old, "device": "Another CPU"})
    assert why_not_paired(made(environment=old), other) is not None


def test_a_precision_that_both_sides_name_is_what_they_compare():
    assert why_not_paired(made(), made(precision="bf16")) is None
    other = made(precision="bf16", environment={"instruction_set": "AVX2"})
    assert "different arithmetic" in why_not_paired(made(), other)


def test_a_precision_that_a_config_leaves_open_is_that_of_its_arithmetic():
    other = made(precision="bf16", named="auto")
    assert why_not_paired(made(), other) is not None
    assert why_not_paired(made(), other, precision=False) is None
    assert why_not_paired(made(), made(named="auto")) is None


def test_committed_records_that_left_the_precision_open_pair_with_one_another():
    records = RunStore(RESULTS / "bert_norms").records(precision="auto")
    assert {arithmetic(record) for record in records} == {("cpu", "bf16", "unknown (AMD EPYC)")}
