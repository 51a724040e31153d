"""A claim's file is read strictly, and the folder holds every claim of the documents."""

import re

import pytest
import yaml
from normlab.claims.predicate import Ending, Level, Paired

from normlab import checks
from normlab.claims.claim import load, load_all
from normlab.config import compose, to_dict
from normlab.registry import CONFIG_DIR, option_names, options

FOLDER = CONFIG_DIR / "claim"
SHARED = CONFIG_DIR.parents[1] / "shared" / "claims.md"
CLAIMS = load_all(FOLDER)
STUDY = {
    "id": 7,
    "documents": ["D0"],
    "statement": "It is so.",
    "figure": None,
    "decided": "study",
    "study": "norms",
    "comparisons": [{"score": "test/bleu", "better": {"norm": "ln"}, "worse": {"norm": "bn"}}],
    "expected": "so",
    "literature": "Unknown.",
}
UNIT = {k: v for k, v in STUDY.items() if k not in ("study", "comparisons")} | {
    "decided": "unit",
    "check": "padding.pollutes",
}


def written(folder, content, name="07_so.yaml"):
    path = folder / name
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def test_a_study_with_each_form_of_comparison(tmp_path):
    forms = [
        *STUDY["comparisons"],
        {"measure": "x", "minus": "y", "more": {"norm": "bn"}, "less": {"norm": "ln"}, "margin": 2},
        {"measure": "x", "in": {"norm": "bn"}, "below": 5, "where": {"task": "toy"}},
        {"outcome": "diverged", "in": {"norm": "none"}},
    ]
    claim = load(written(tmp_path, {**STUDY, "comparisons": forms}))
    paired, more, level, ending = claim.comparisons
    assert paired == Paired("test/bleu", {"norm": "ln"}, {"norm": "bn"}, {}, 0.0, (), None, True)
    assert more == Paired("x", {"norm": "bn"}, {"norm": "ln"}, {}, 2.0, (), "y", False)
    assert level == Level("x", {"norm": "bn"}, {"task": "toy"}, 5.0, False, None)
    assert ending == Ending("diverged", {"norm": "none"}, {})
    assert (claim.id, claim.name, claim.figure, claim.decided) == (7, "07_so", None, "study")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"statment": "x"}, r"statment: no such key here; allowed: check, .*statement"),
        ({"id": "7"}, r"id: expected a whole number, found '7'"),
        ({"id": True}, r"id: expected a whole number, found True"),
        ({"id": 8}, r"id: 8 does not open the file's name; name it 08_"),
        ({"documents": ["D9"]}, r"documents: 'D9' is not one of D0, D1"),
        ({"documents": []}, r"documents: the list is empty"),
        ({"decided": "vote"}, r"decided: 'vote' is not one of unit, study, note"),
        ({"check": "pollutes"}, r"check: expected file.function"),
        ({"standing": "supports"}, r"standing: does not belong where decided is study"),
        ({"decided": "unit"}, r"check: missing where decided is unit"),
        ({"missing": "no data"}, r"missing: does not belong .* with 1 comparisons"),
        ({"comparisons": []}, r"missing: missing where decided is study with 0 comparisons"),
        ({"comparisons": ["x"]}, r"comparisons\[0\]: expected keys and values, found 'x'"),
        ({"comparisons": [{"score": "b"}]}, r"comparisons\[0\].better: missing"),
        (
            {"comparisons": [{**STUDY["comparisons"][0], "margn": 1}]},
            r"comparisons\[0\].margn: no such key here; allowed: .*margin",
        ),
        (
            {"comparisons": [{**STUDY["comparisons"][0], "margin": "1"}]},
            r"comparisons\[0\].margin: expected a number, found '1'",
        ),
        (
            {"comparisons": [{**STUDY["comparisons"][0], "where": {"norm": ["ln"]}}]},
            r"comparisons\[0\].where.norm: expected one value",
        ),
        ({"comparisons": [{"measure": "b", "in": {}}]}, r"needs one of the keys above and below"),
        ({"comparisons": [{"outcome": "bored", "in": {}}]}, r"'bored' is not one of diverged"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_key(tmp_path, change, message):
    path = written(tmp_path, {**STUDY, **change})
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))}: .*{message}"):
        load(path)


def test_a_key_that_is_missing_is_named(tmp_path):
    for key in ("id", "documents", "statement", "figure", "decided", "expected", "literature"):
        path = written(tmp_path, {k: v for k, v in STUDY.items() if k != key})
        with pytest.raises(ValueError, match=f"{key}: missing"):
            load(path)


def test_a_file_that_is_no_yaml_or_no_mapping_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"07_so.yaml: not YAML"):
        load(written(tmp_path, "id: [7"))
    with pytest.raises(ValueError, match=r"07_so.yaml: the file: expected keys and values"):
        load(written(tmp_path, "- 7"))


def test_two_files_cannot_share_an_id(tmp_path):
    written(tmp_path, STUDY)
    written(tmp_path, UNIT, "07_too.yaml")
    with pytest.raises(ValueError, match="07_so and 07_too share the id 7"):
        load_all(tmp_path)


def test_a_note_says_why(tmp_path):
    note = {k: v for k, v in UNIT.items() if k != "check"} | {"decided": "note"}
    with pytest.raises(ValueError, match="standing: missing"):
        load(written(tmp_path, note))
    with pytest.raises(ValueError, match="reason: missing"):
        load(written(tmp_path, {**note, "standing": "contradicts"}))
    claim = load(written(tmp_path, {**note, "standing": "contradicts", "reason": "It is not."}))
    assert (claim.standing, claim.reason) == ("contradicts", "It is not.")


def test_every_row_of_the_claims_has_a_file_with_its_documents():
    if not SHARED.is_file():
        pytest.skip(f"no {SHARED}: the table of claims is not part of the repository")
    text = SHARED.read_text("utf-8").replace("D2-D4", "D2, D3, D4")
    rows = re.findall(r"^\| (\d+) \|[^|]*\| ([D0-9, ]+) \|", text, re.M)
    assert len(rows) == 41
    found = {claim.id: set(claim.documents) for claim in CLAIMS}
    assert found == {int(number): set(re.split(", ?", named)) for number, named in rows}


def test_ls_says_what_each_claim_is():
    for option, claim in zip(options("claim"), CLAIMS, strict=True):
        assert option.command == f"normlab claims {claim.id}"
        assert option.description


def test_every_check_exists_and_decides_a_claim():
    assert {claim.check for claim in CLAIMS} - {None} == set(checks.names())


def test_every_page_that_a_claim_refers_to_is_there():
    for claim in CLAIMS:
        for page in claim.see:
            assert (CONFIG_DIR.parent / page).is_file(), f"{claim.name}: {page}"


def test_every_key_that_a_comparison_chooses_by_is_one_of_a_config():
    """A name with a slip would find no run for ever, and look like a claim not measured yet."""
    configs = [to_dict(compose([f"task={name}"])) for name in option_names("task")]
    norms = [to_dict(compose([f"norm={name}"])) for name in option_names("norm")]
    known = {key for config in [*configs, *norms] for key in leaves(config)}
    known |= {key for config in configs for key in config["choices"]}
    for claim in CLAIMS:
        for comparison in claim.comparisons:
            sides = [getattr(comparison, name, {}) for name in ("where", "first", "second")]
            for key in {key for side in sides for key in side}:
                assert key in known, f"{claim.name}: {key}"


def leaves(node, prefix=""):
    for key, value in node.items():
        yield prefix + key
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")


def test_every_option_that_a_comparison_chooses_is_there():
    for claim in CLAIMS:
        for comparison in claim.comparisons:
            for name in ("where", "first", "second", "inside"):
                for group, option in getattr(comparison, name, {}).items():
                    for part in str(option).split("+") if (CONFIG_DIR / group).is_dir() else []:
                        assert part in option_names(group), f"{claim.name}: {group}={option}"
