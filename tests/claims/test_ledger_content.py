"""What the claim files say is whole: every claim, every study, every check, margins by the rule."""

import re
from collections import defaultdict
from pathlib import Path

import pytest

from normlab.claims.claim import Claim, Part, load_all
from normlab.claims.endpoint import Computed, Contrast, Document, Level, Timing, Trains
from normlab.claims.evidence import read_computed
from normlab.claims.seeds import Endpoint
from normlab.config.registry import CONFIG_DIR, option_names
from normlab.inspect import computed
from normlab.studies import load_study

FOLDER = CONFIG_DIR / "claim"
CLAIMS = load_all(FOLDER)
EACH = pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
OF_RUNS = Contrast | Trains | Level | Document
SEEDS = (1, 2, 3, 4, 5)
MARGINS = {"bleu": 0.5, "loss": 0.05, "accuracy": 0.01}
FACTOR = 1.25

FOUND = read_computed(CONFIG_DIR.parent / "results" / "computed.json")


def test_every_claim_of_the_documents_has_a_file():
    assert [claim.id for claim in CLAIMS] == list(range(1, 54))
    assert {name for claim in CLAIMS for name in claim.documents} == {f"D{n}" for n in range(5)}


@EACH
def test_the_summary_has_every_statement_in_chinese(claim: Claim):
    said = [claim.chinese, *(part.chinese for part in claim.parts)]
    assert all(re.search(r"[\u4e00-\u9fff].*。$", text) for text in said)


@EACH
def test_a_check_that_is_named_found_what_is_picked_of_it(claim: Claim):
    for endpoint in _all(claim):
        if isinstance(endpoint, Computed):
            questions = [piece.question for piece in FOUND[endpoint.check]]
            for text in endpoint.only:
                assert any(question.startswith(text) for question in questions), questions


def test_every_check_decides_a_part():
    used = {
        part.endpoint.check
        for claim in CLAIMS
        for part in claim.parts
        if isinstance(part.endpoint, Computed)
    }
    assert used == set(computed.names())


@EACH
def test_a_primary_endpoint_is_of_a_scale_that_counts_with_five_seeds(claim: Claim):
    for endpoint in (part.endpoint for part in claim.parts):
        if isinstance(endpoint, OF_RUNS) and endpoint.study != "bert_norms":
            scale = load_study(endpoint.study).scale(endpoint.scale)
            assert scale.seeds == SEEDS and not scale.pilot
            assert endpoint.scale == "paper" or "precision=fp32" in scale.overrides


@EACH
def test_a_margin_follows_the_rule_or_the_file_says_why(claim: Claim):
    for part in claim.parts:
        endpoint = part.endpoint
        if isinstance(endpoint, Timing):
            assert endpoint.margin == 0.02 or "#" in _written(claim, part), part.name
        elif isinstance(endpoint, Contrast | Level):
            ratio = isinstance(endpoint, Contrast) and endpoint.ratio
            ruled = {FACTOR} if ratio else {_ruled(score) for score in endpoint.scores}
            assert ruled == {endpoint.margin} or "#" in _written(claim, part), part.name


def test_a_study_names_the_claims_that_it_decides():
    claims: defaultdict[str, set[int]] = defaultdict(set)
    for claim in CLAIMS:
        for endpoint in _all(claim):
            if isinstance(endpoint, OF_RUNS):
                claims[endpoint.study].add(claim.id)
    for name in option_names("study"):
        study = load_study(name)
        if not all(scale.pilot for scale in study.scales.values()):  # those decide nothing
            assert set(study.claims) == claims[name], name


def _all(claim: Claim) -> list[Endpoint]:
    return [endpoint for part in claim.parts for endpoint in (part.endpoint, *part.secondary)]


def _ruled(score: str) -> float | None:
    """Return the margin of a score by its last word: test_2017/bleu, test/nsp_accuracy."""
    return MARGINS.get(re.split(r"[/_]", score)[-1])


def _written(claim: Claim, part: Part) -> str:
    text = Path(claim.path).read_text("utf-8").partition("parts:\n")[2]
    (block,) = [
        block
        for block in re.split(r"(?m)^  - name: ", text)
        if block.partition("\n")[0] == part.name
    ]
    return block
