"""A claim's file is read strictly, and what the committed ones name is there."""

import re

import pytest
import yaml

from normlab.claims.claim import load, load_all
from normlab.claims.endpoint import Computed, Contrast, Timing
from normlab.claims.evidence import Plan
from normlab.config.compose import compose, to_dict
from normlab.config.registry import CONFIG_DIR, option_names, options, read_yaml
from normlab.studies import load_study
from tests.claims.made import configs, contrast, part
from tests.claims.planned import endpoints

FOLDER = CONFIG_DIR / "claim"
CLAIM = {
    "id": 7,
    "documents": ["D0"],
    "statement": "It is so.",
    "figure": None,
    "literature": "Unknown.",
    "parts": [contrast()],
}


@pytest.fixture(scope="session")
def committed():
    """Return the committed claims."""
    return load_all(FOLDER)


def written(folder, content, name="07_so.yaml"):
    path = configs(folder) / "claim" / name
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


@pytest.mark.parametrize(
    ("body", "says", "expected"),
    [
        (
            contrast(1, over=["placement"], where={"task": "toy"})["endpoint"],
            "equality",
            Contrast(
                study="made", scale="small", scores=("test/bleu",), better={"norm": "ln"},
                worse={"norm": "bn"}, where={"task": "toy"}, over=("placement",), margin=1.0,
            ),
        ),
        (
            {"computed": {"check": "batch.mates", "only": ["ln"]}},
            "definition",
            Computed("batch.mates", ("ln",)),
        ),
        (
            {"timing": {"faster": "bn", "than": "ln", "group": "model, 1"}},
            "difference",
            Timing("bn", "ln", "model, 1", 0.02),
        ),
    ],
)  # fmt: skip
def test_each_kind_of_endpoint_is_read(tmp_path, body, says, expected):
    claim = load(written(tmp_path, {**CLAIM, "parts": [part(body, says)]}))
    assert claim.parts[0].endpoint == expected
    assert (claim.id, claim.figure) == (7, None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"literature": ...}, r"the file: Object missing required field `literature`"),
        (
            {"statment": "x"},
            r"the file: .* unknown field `statment`; there are .*statement",
        ),
        ({"id": 8}, r"id: 8 is not in the file name; rename it to 08_"),
        ({"parts": ["x"]}, r"parts\[0\]: expected keys and values, found 'x'"),
        ({"parts": [part({}, says="so")]}, r"parts\[0\].says: Invalid enum value 'so'"),
        (
            {"parts": [part({"level": {}, "computed": {}})]},
            r"endpoint: needs exactly one of .* found .*level",
        ),
        (
            {"parts": [contrast(says="trains")]},
            r"endpoint.contrast: cannot decide a part with says: trains; expected says: diff",
        ),
        (
            {"parts": [contrast(margn=1)]},
            r"contrast: .* unknown field `margn`; there are .*margin",
        ),
        ({"parts": [contrast(margin=0.5, ratio=True)]}, r"margin: expected at least 1, found 0.5"),
        (
            {"parts": [contrast(**{"in": {"batching": "x"}})]},
            r"in: an interaction needs both in and than_in",
        ),
    ],
)
def test_what_is_wrong_is_named_with_file_and_key(tmp_path, change, message):
    content = {key: value for key, value in {**CLAIM, **change}.items() if value is not ...}
    path = written(tmp_path, content)
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))}: .*{message}"):
        load(path)


def test_every_page_that_a_claim_refers_to_is_there(committed):
    for claim in committed:
        for page in claim.see:
            assert (CONFIG_DIR.parent / page).is_file(), f"{claim.path}: {page}"


def selections(endpoint):
    """Return what an endpoint chooses runs by."""
    names = ("where", "better", "worse", "inside", "outside", "side", "reference", "of", "data")
    return [getattr(endpoint, name, {}) for name in names]


def leaves(node, prefix=""):
    for key, value in node.items():
        yield prefix + key
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")


def test_every_key_that_a_claim_chooses_by_is_one_of_a_config(committed):
    """A name with a slip would find no run for ever, and look like a claim not measured yet."""
    config = to_dict(compose([]))
    known = {*leaves(config), *config["choices"]}
    for group in ("norm", "task", "model"):
        for option in options(group):
            known |= {f"{group}.{key}" for key in leaves(read_yaml(option.path))}
    for study in map(load_study, option_names("study")):
        for scale in study.scales:
            known |= set(Plan(study, scale).varied)
    for name, endpoint in endpoints(committed):
        keys = {key for chosen in selections(endpoint) for key in chosen}
        for key in (*keys, *getattr(endpoint, "over", ())):
            assert key in known, f"{name}: {key}"
