"""The published results that the articles refer to."""

import pytest

from normlab.articles.results import Results
from normlab.claims.evidence import CheckFinding
from normlab.errors import UserError
from tests.claims.ledgers import saved_claim, saved_part


@pytest.fixture
def results(tmp_path):
    claim = saved_claim(2, saved_part("better", "supported"), saved_part("worse", "undecided", 2))
    made = Results(tmp_path, {2: claim})
    made.checks = {"a.check": [CheckFinding("?", name, "supports", {}, name) for name in "xy"]}
    return made


def test_parts_and_findings_are_found_by_name_and_have_a_place(results):
    assert results.part("2.worse").verdict == "undecided" and results.place("2.worse") == "2.2"
    assert results.claim_of("2.worse").id == 2
    assert results.finding("a.check", "y").finding == "y"
    assert results.place_of_finding("a.check", "y") == "a.check 2"
    assert results.claim_of_check("a.check") is None, "no part is decided by it"


@pytest.mark.parametrize("name", ["2.best", "3.worse", "worse", "2"])
def test_the_error_for_an_unknown_part_names_the_ledger_and_the_parts_of_its_claim(results, name):
    with pytest.raises(UserError, match=rf"claims.json has no part {name}"):
        results.part(name)
    with pytest.raises(UserError, match="parts of claim 2: better, worse"):
        results.part("2.best")


def test_missing_findings_and_runs_are_errors_that_name_their_file(results):
    with pytest.raises(
        UserError, match=r"computed.json: a.check has no finding 'z'; choose from x"
    ):
        results.finding("a.check", "z")
    with pytest.raises(UserError, match=r"records.jsonl is missing. The results come with a"):
        results.experiment("norms/small", "ln", "")
