"""The verdict of a claim."""

import pytest

from normlab.claims.verdict import combined_verdict


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (["supported", "supported"], "supported"),
        (["contradicted"], "contradicted"),
        (["contradicted", "no difference"], "contradicted"),
        (["supported", "contradicted"], "mixed"),
        (["supported", "no difference", "undecided"], "mixed"),
        (["contradicted", "not measured"], "contradicted"),
        (["supported", "undecided", "not measured"], "supported"),
        (["undecided", "not measured"], "undecided"),
        (["not measured"], "not measured"),
    ],
)
def test_the_verdict_of_a_claim_combines_the_verdicts_of_its_parts(parts, expected):
    assert combined_verdict(parts) == expected
