"""The text of verdicts, and the Chinese names of data."""

import json
import re

from normlab.claims.texts import (
    aligned_interval,
    data_in_chinese,
    interval_text,
    verdict_text,
)
from normlab.config.folders import RESULTS
from normlab.config.registry import options
from normlab.formats import aligned
from normlab.studies.load import load_study
from tests.claims.ledgers import compared, decided, judged_claim, open_part

NAMED = {"yes": "supported", "no": "contradicted", "two": "no difference"}


def test_the_text_of_a_verdict_counts_open_and_unmeasured_parts():
    yes, no, two = (decided(name, compared(verdict)) for name, verdict in NAMED.items())
    size, awaited = decided("size", compared("undecided")), decided("more", open_part())
    said = {
        "supported (1 part open, 2 not measured; ": (yes, size, awaited, awaited),
        "contradicted (2 parts not measured; ": (no, two, awaited, awaited),
        "mixed (1 part supported, 1 contradicted, 1 no difference, 1 open; ": (yes, no, two, size),
        "undecided (1 part not measured)": (size, awaited),
        "not measured": (awaited,),
    }
    for text, parts in said.items():
        assert verdict_text(judged_claim(1, *parts)).startswith(text)


def test_the_data_of_every_study_has_a_chinese_name():
    names = set()
    for option in options("study"):
        for scale in load_study(option.name).scales.values():
            names |= {scale.data_name, *scale.data_of_tasks.values()}
    assert "Multi30k de-en" in names
    words = {word for name in names for word in re.findall(r"[A-Za-z]{2,}", data_in_chinese(name))}
    proper = "Multi Brown CIFAR Python AMD EPYC bf IWSLT mini TED Tatoeba WikiText UCI"
    assert words <= set(proper.split())


def test_the_data_and_the_machine_of_every_grade_have_a_chinese_name():
    """Only a name of one word, such as CIFAR-10, is the same in Chinese."""
    ledger = json.loads((RESULTS / "claims.json").read_text("utf-8"))
    parts = [part for claim in ledger for part in claim["parts"] + claim["secondary"]]
    grades = {part["grades"][1] for part in parts if part["grades"]}
    names = {re.sub(r", [\d+]+( to [\d+]+)? layers$", "", each[3:]) for each in grades} - {""}
    assert len(names) > 20 and "Intel Xeon bf16" in names
    assert [name for name in names if " " in name and data_in_chinese(name) == name] == []


def test_an_interval_end_is_not_rounded_to_a_bound_that_it_does_not_equal():
    def shown(*values):
        return interval_text(aligned_interval(*values))

    assert shown(1.2323, 1.2147, 1.2498, (0.75, 1.0, 1.25)) == "1.2323 [1.2147, 1.2498]"
    assert shown(1.2323, 1.2147, 1.2698, (0.75, 1.0, 1.25)) == "1.23 [1.21, 1.27]"
    assert shown(2.27, 0.5, 3.45, (0.5,)) == "2.27 [0.50, 3.45]"
    assert shown(0.5, -0.003, 1.0, (0.0,)) == "0.500 [-0.003, 1.000]"

    assert shown(-1e-9, -2e-8, 3e-8, (-0.05, 0.0, 0.05)) == "0 [0, 0]"
    assert shown(-0.0004, -0.2, 0.1) == "0.000 [-0.200, 0.100]"


def test_a_huge_factor_has_three_digits_and_a_power_of_ten():
    assert aligned(1.07, 1.55e17) == ["1.07", "1.55e+17"]
    assert aligned(0.126, 12.34, 999_999.0) == ["0", "12", "999999"]
