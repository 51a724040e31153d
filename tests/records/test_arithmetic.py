"""What the arithmetic of a run is, and which seeds of two sides it keeps apart."""

from pathlib import Path

import pytest

from normlab.records.arithmetic import arithmetic, unlike
from normlab.records.store import RunStore
from tests.records.examples import record

RESULTS = Path(__file__).resolve().parents[2] / "results"
HERE = {"device": "A CPU", "device_type": "cpu", "instruction_set": "AVX512-BF16"}


def made(seed=1, *, norm="ln", precision="fp32", named=None, **environment):
    return record(
        seed=seed,
        norm=norm,
        precision=named or precision,
        environment={**HERE, "precision": precision, **environment},
    )


def test_arithmetic_is_device_type_precision_and_instruction_set():
    assert arithmetic(made()) == ("cpu", "fp32", "AVX512-BF16")


@pytest.mark.parametrize(
    ("environment", "alike"),
    [
        ({}, True),
        ({"device": "Another CPU"}, True),
        ({"instruction_set": "AVX2"}, False),
        ({"device_type": "cuda", "instruction_set": "cuda sm_90"}, False),
        ({"instruction_set": None}, False),
    ],
)
def test_a_pair_is_formed_on_like_processors_alone(environment, alike):
    reason = unlike([made()], [made(norm="bn", **environment)])
    assert (reason is None) == alike


def test_records_without_an_instruction_set_pair_on_the_same_device_alone():
    old = {"instruction_set": None}
    assert arithmetic(made(**old))[2] == "unknown (A CPU)"
    assert unlike([made(**old)], [made(norm="bn", **old)]) is None
    assert unlike([made(**old)], [made(norm="bn", device="Another CPU", **old)]) is not None


def test_whole_seeds_may_be_computed_elsewhere():
    first = [made(1), made(2, instruction_set="AVX2")]
    second = [made(1, norm="bn"), made(2, norm="bn", instruction_set="AVX2")]
    assert unlike(first, second) is None


def test_a_seed_whose_sides_were_computed_on_unlike_machines_is_named():
    first = [made(1), made(2, instruction_set="AVX2")]
    second = [made(1, norm="bn"), made(2, norm="bn")]
    assert unlike(first, second) == (
        "seed 2 was computed in cpu fp32 AVX2 and cpu fp32 AVX512-BF16"
    )


def test_a_seed_that_one_side_lacks_keeps_nothing_apart():
    assert unlike([made(1)], [made(1, norm="bn"), made(2, norm="bn", precision="bf16")]) is None


def test_a_precision_that_both_sides_name_is_what_they_compare():
    assert unlike([made(precision="fp32")], [made(precision="bf16")]) is None
    other = made(precision="bf16", instruction_set="AVX2")
    assert unlike([made(precision="fp32")], [other]) == (
        "seed 1 was computed in cpu AVX512-BF16 and cpu AVX2"
    )


def test_a_precision_that_a_config_leaves_open_is_that_of_its_arithmetic():
    assert unlike([made(precision="fp32")], [made(precision="bf16", named="auto")]) is not None
    assert unlike([made(precision="fp32")], [made(precision="fp32", named="auto")]) is None


def test_committed_records_that_left_the_precision_open_pair_with_one_another():
    records = RunStore(RESULTS / "bert_norms").records(precision="auto")
    assert {arithmetic(record) for record in records} == {("cpu", "bf16", "unknown (AMD EPYC)")}
