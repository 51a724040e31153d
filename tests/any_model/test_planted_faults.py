"""Every planted fault is found in the right module, and no correct twin gets a false alarm."""

import re

import pytest

import normlab
from tests.any_model.pairs import PAIRS, case

HARM = ("fine", "look", "broken")


def findings(name, faulty, checks="quick"):
    subject = case(name, faulty)
    report = normlab.inspect(subject.model, subject.batches, checks=checks, **subject.arguments)
    return report.findings


@pytest.mark.parametrize("name", PAIRS)
def test_a_planted_fault_is_found_in_its_module(name):
    pair = PAIRS[name]
    found = findings(name, True, pair.question)[pair.question]
    assert HARM.index(found.verdict) >= HARM.index(pair.verdict), found
    assert re.fullmatch(pair.module, found.module), found


@pytest.mark.parametrize("name", PAIRS)
def test_the_correct_twin_of_a_fault_raises_no_false_alarm(name):
    found = findings(name, False)
    accused = {each.name: str(each) for each in found.values() if each.verdict in HARM[1:]}
    assert accused == {}
