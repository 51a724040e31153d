"""Claim files are read strictly. The committed ones are complete and refer only to what exists."""

import json
import re
from collections import defaultdict
from pathlib import Path

import pytest
import yaml

from normlab.claim_checks import checks as all_checks
from normlab.claims.claim import Claim, Part, load, load_all
from normlab.claims.endpoint import StudyEndpoint
from normlab.claims.evidence import COMPUTED, PlannedRuns, read_computed
from normlab.claims.other_endpoints import Computed, Timing
from normlab.claims.study_endpoints import Contrast, Level
from normlab.config.compose import compose
from normlab.config.folders import CONFIG_DIR
from normlab.config.registry import option_names, options
from normlab.config.run_config import to_dict
from normlab.config.yaml_files import read_yaml
from normlab.studies.load import load_study
from tests.claims.handmade_study import configs, contrast, part
from tests.claims.planned import endpoints

CLAIMS = load_all(CONFIG_DIR / "claim")
EACH = pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
MARGINS = {"bleu": 0.5, "loss": 0.05, "accuracy": 0.01}
FOUND = read_computed(CONFIG_DIR.parent / "results" / COMPUTED)
SAVED = json.loads((CONFIG_DIR.parent / "results" / "claims.json").read_text("utf-8"))
VERDICTS = {claim["id"]: claim["verdict"] for claim in SAVED}
ANSWERS = {
    "supported": (r"True\b", "(?!.*(不成立|部分成立)).*成立"),
    "contradicted": (r"Not true\b", "(?!.*部分成立).*不成立"),
    "mixed": (r"Partly true: ", "部分成立："),
    "undecided": (r"Open: ", "尚无定论："),
    "not measured": (r"Not tested: ", "未检验："),
}
"""How the answer to a claim of each verdict begins, in English and Chinese."""
CLAIM = {
    "id": 7,
    "articles": ["article 1"],
    "statement": "It is so.",
    "answer": "True.",
    "chinese_answer": "成立。",
    "figure": None,
    "literature": "Unknown.",
    "parts": [contrast()],
}


def written(folder, content, name="07_so.yaml"):
    path = configs(folder) / "claim" / name
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answer": ...}, r"the file: Object missing required field `answer`"),
        ({"statment": "x"}, r"the file: `statment` does not exist; choose from .*statement"),
        ({"id": 8}, r"id: 8 is not in the file name; rename it to 08_"),
        ({"parts": ["x"]}, r"parts\[0\]: expected keys and values, found 'x'"),
        ({"parts": [part({}, assertion="so")]}, r"parts\[0\].assertion: Invalid enum value 'so'"),
        (
            {"parts": [part({"level": {}, "computed": {}})]},
            r"endpoint needs exactly one of .* found .*level",
        ),
        (
            {"parts": [contrast(assertion="trains")]},
            r"endpoint.contrast cannot decide a part with assertion: trains; set assertion: diff",
        ),
        (
            {"parts": [contrast(margn=1)]},
            r"contrast: `margn` does not exist; choose from study",
        ),
        ({"parts": [contrast(margin=0.5, ratio=True)]}, r"margin: expected at least 1, found 0.5"),
        (
            {"parts": [contrast(**{"inside": {"batching": "x"}})]},
            r"inside: an interaction needs both inside and outside",
        ),
    ],
)
def test_an_invalid_claim_file_raises_an_error_with_the_file_and_the_key(tmp_path, change, message):
    content = {key: value for key, value in {**CLAIM, **change}.items() if value is not ...}
    path = written(tmp_path, content)
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))}: .*{message}"):
        load(path)


def test_claims_are_numbered_without_gaps_and_cover_every_article():
    assert [claim.id for claim in CLAIMS] == list(range(1, len(CLAIMS) + 1))
    assert {name for claim in CLAIMS for name in claim.articles} == {
        *(f"article {n}" for n in range(1, 6)),
        "a question of our own",
    }


@EACH
def test_every_statement_of_a_claim_has_a_chinese_translation(claim: Claim):
    said = [claim.chinese, *(part.chinese for part in claim.parts)]
    said += [part.chinese_note for part in claim.parts if part.note]
    assert all(re.search(r"[\u4e00-\u9fff].*。$", text) for text in said)


@EACH
def test_the_answer_is_one_line_that_begins_with_the_words_for_its_verdict(claim: Claim):
    english, chinese = ANSWERS[VERDICTS[claim.id]]
    assert re.match(english, claim.answer) and re.match(chinese, claim.chinese_answer)
    assert claim.answer[-1] == "." and claim.chinese_answer[-1] == "。"
    assert len(claim.answer) <= 150


def test_the_answer_on_drift_quotes_the_factor_in_the_ledger():
    """Answers are written by hand; this one must quote the number in the records."""
    (claim,) = (each for each in SAVED if each["id"] == 42)
    (factor,) = (
        float(each["finding"].split()[1])
        for each in claim["secondary"]
        if "lower with norm=bn than with norm=none" in each["question"]
        and "results/noisy_norms/small" in " ".join(each["records"])
    )
    for text in (claim["answer"], claim["chinese_answer"]):
        said = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]
        assert said == [pytest.approx(1 / factor, abs=0.05)]


@EACH
def test_the_pages_and_checks_that_a_claim_refers_to_exist(claim: Claim):
    assert all((CONFIG_DIR.parent / page).is_file() for page in claim.see)
    for endpoint in endpoints(claim):
        if isinstance(endpoint, Computed):
            assert {each.name for each in FOUND[endpoint.check]} >= set(endpoint.only)


def test_every_check_is_used_by_an_endpoint():
    every = [each for claim in CLAIMS for each in endpoints(claim)]
    checks = {each.check for each in every if isinstance(each, Computed)}
    assert checks == {each.name for each in all_checks()}


@EACH
def test_primary_endpoints_use_a_scale_with_five_seeds_that_is_not_a_pilot(claim: Claim):
    for endpoint in (each.endpoint for each in claim.parts):
        if isinstance(endpoint, StudyEndpoint) and endpoint.study != "bert_norms":
            scale = load_study(endpoint.study).scale(endpoint.scale)
            assert scale.seeds == (1, 2, 3, 4, 5) and not scale.pilot
            assert endpoint.scale == "paper" or "precision=fp32" in scale.overrides


@EACH
def test_a_margin_follows_the_rule_or_has_a_comment_in_the_claim_file(claim: Claim):
    for each in claim.parts:
        endpoint = each.endpoint
        if isinstance(endpoint, Timing):
            assert endpoint.margin == 0.02 or "#" in _written(claim, each), each.name
        elif isinstance(endpoint, Contrast | Level):
            ratio = isinstance(endpoint, Contrast) and endpoint.ratio
            ruled = {1.25} if ratio else {_ruled(score) for score in endpoint.scores}
            assert ruled == {endpoint.margin} or "#" in _written(claim, each), each.name


def test_a_study_lists_the_claims_that_it_decides():
    claims: defaultdict[str, set[int]] = defaultdict(set)
    for claim in CLAIMS:
        for endpoint in endpoints(claim):
            if isinstance(endpoint, StudyEndpoint):
                claims[endpoint.study].add(claim.id)
    for name in option_names("study"):
        study = load_study(name)
        if not all(scale.pilot for scale in study.scales.values()):  # pilots decide nothing
            assert set(study.claims) == claims[name], name


def leaves(node, prefix=""):
    for key, value in node.items():
        yield prefix + key
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")


def test_every_key_that_a_claim_selects_runs_by_exists_in_a_config():
    """A misspelled key would match no run, so the claim would appear as not measured."""
    config = to_dict(compose([]))
    known = {*leaves(config), *config["choices"]}
    for group in ("norm", "task", "model"):
        for option in options(group):
            known |= {f"{group}.{key}" for key in leaves(read_yaml(option.path))}
    for study in map(load_study, option_names("study")):
        for scale in study.scales:
            known |= set(PlannedRuns(study, scale).varied)
    for claim in CLAIMS:
        for each in endpoints(claim):
            if isinstance(each, StudyEndpoint):
                chosen = (each.where, *each.sides, getattr(each, "data", {}))
                assert {*each.over, *(key for keys in chosen for key in keys)} <= known, claim.path


def _ruled(score: str) -> float | None:
    """Return a score's margin by the last word of its name: test_2017/bleu, test/nsp_accuracy."""
    return MARGINS.get(re.split(r"[/_]", score)[-1])


def _written(claim: Claim, named: Part) -> str:
    text = Path(claim.path).read_text("utf-8").partition("parts:\n")[2]
    blocks = re.split(r"(?m)^  - name: ", text)
    return next(each for each in blocks if each.partition("\n")[0] == named.name)
