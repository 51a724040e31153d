"""Corrections within a study, verdicts of claims, and the command that shows them."""

import json
import re

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from normlab.claims.decision import NOT_SURVIVED
from normlab.claims.evidence import CheckFinding, read_computed, to_json
from normlab.claims.ledger import ledger
from normlab.claims.verdict import combined_verdict
from normlab.commands import claims as command
from normlab.config.folders import CONFIG_DIR
from normlab.records import manifest
from normlab.records.packed import Key, write_pack
from normlab.records.record import Score
from tests.claims.made import CONTRAST, claim, configs, contrast, decided, part, run, runs_of, side


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


@pytest.fixture
def among_ten(tmp_path):
    """Return the result of a contrast on its own, and as one of ten contrasts in its study."""
    noise = enumerate((0.0, 0.025, -0.025, 0.03, -0.03), 1)  # ln is better by 0.1, p 0.0012
    records = side("ln", 30.0) + [run(k, "bn", 29.9 + each) for k, each in noise]

    def outcomes(margin):
        root = configs(tmp_path)
        one = claim(root, contrast(margin=margin))
        others = (contrast(margin=margin, worse={"norm": "none"}) for _ in range(9))
        other = claim(root, *others, number=2)
        (alone,) = ledger([one], runs_of(root, records))
        among, _ = ledger([one, other], runs_of(root, records))
        return alone.primary[0], among.primary[0]

    return outcomes


def test_a_direction_is_reported_only_if_it_survives_the_correction(among_ten):
    alone, among = among_ten(0.12)
    assert str(alone.reason) == "the direction is shown, its size is open"
    assert alone.decision.p.direction < 0.01
    assert "these seeds would have shown" in str(among.reason)


def test_p_values_are_corrected_within_a_study_over_all_claims(among_ten):
    alone, among = among_ten(0)
    assert alone.verdict == "supported"
    assert alone.decision.p.at_look == pytest.approx(5 * alone.decision.p.observed)
    assert alone.p_holm == pytest.approx(alone.decision.p.at_look)
    assert among.p_holm == pytest.approx(min(1.0, 10 * alone.decision.p.at_look))
    assert (among.verdict, among.reason) == ("undecided", NOT_SURVIVED)


def test_only_a_part_that_is_open_after_the_correction_has_a_command(among_ten):
    alone, among = among_ten(0)
    more = among.judgement.to_measure
    assert more.command == "normlab study run made scale=small seeds=6,7,8"
    assert more.cost.startswith("9 runs, about 54 min") and alone.judgement.to_measure is None


def test_secondary_endpoints_do_not_affect_the_correction(tmp_path):
    records = side("ln", 30.0) + side("bn", 28.0)
    more = [{"contrast": {**CONTRAST, "margin": 5}}] * 3
    plain = decided(tmp_path, records, contrast())
    entry = decided(tmp_path, records, contrast() | {"secondary": more})
    assert entry.verdict == "supported" and len(entry.secondary) == 3
    assert entry.primary[0].p_holm == plain.primary[0].p_holm
    assert [each.p_holm for each in entry.secondary] == [None] * 3


def test_a_supported_reported_value_survives_the_correction(tmp_path):
    body = {"study": "made", "scale": "small", "score": "test/bleu", "of": {"norm": "bn"}}
    each = part({"reported": {**body, "value": 30, "data": {"task": "toy"}}}, "figure")
    entry = decided(tmp_path, side("bn", 30.0, 12), each, contrast())
    assert entry.primary[0].verdict == "supported"


def test_one_contradicting_finding_decides_a_check_unless_only_leaves_it_out(tmp_path):
    found = {
        "a.b": [
            CheckFinding("bn: it moves", "it moves", "supports", name="moving"),
            CheckFinding("ln: it moves", "it does not", "contradicts", name="still"),
        ]
    }
    every, some, none = (
        part({"computed": {"check": "a.b", "only": only}}, "definition")
        for only in ([], ["moving"], ["bn"])
    )
    entry = decided(tmp_path, [], every, some, none, computed=found)
    verdicts = [each.verdict for each in entry.primary]
    assert verdicts == ["contradicted", "supported", "not measured"]
    assert "moving; still" in entry.primary[2].reason
    assert entry.verdict == "mixed" and entry.grades == "D"
    assert decided(tmp_path, [], some).primary[0].reason == "not computed"


def test_findings_of_checks_are_saved_with_rounded_numbers(tmp_path):
    pieces = [CheckFinding("q", "f", "supports", {"moved": 0.2123456, "noise": 3e-17})]
    path = tmp_path / "computed.json"
    path.write_text(to_json({"a.b": pieces}))
    (piece,) = read_computed(path)["a.b"]
    assert piece.numbers == {"moved": 0.2123, "noise": 0.0} and piece.question == "q"
    assert read_computed(tmp_path / "nothing.json") == {}
    path.write_text("{")
    with pytest.raises(ValueError, match=r"damaged .*; recreate it with .* --write"):
        read_computed(path)


RECORDS = {
    Key(norm, "", record.seed): record
    for norm, mean in (("ln", 30.0), ("bn", 28.0))
    for record in side(norm, mean)
}


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Return the results folder of a checkout with one study and three claims."""
    root = configs(tmp_path / "configs")
    claim(root, contrast(), part({"computed": {"check": "padding.pollutes"}}, "definition"))
    missing = {"standing": "missing", "reason": "There are no pictures."}
    claim(root, part({"published": missing}), number=2)
    claim(root, contrast(margin=5), number=3)
    write_pack(tmp_path / "results" / "made" / "small", RECORDS)
    monkeypatch.setattr(command, "CONFIG_DIR", root)
    return tmp_path / "results"


def call(capsys, results, *argv):
    code = command.main([*argv, "--results", str(results)])
    out, err = capsys.readouterr()
    return code, out, err


def plain(capsys, results, *argv):
    return json.loads(call(capsys, results, *argv, "--json")[1])


def test_the_list_shows_each_claim_with_its_answer_in_2_to_5_lines_of_80_columns(
    capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "80")
    assert command.main([]) == 0
    listed = capsys.readouterr().out.partition("\n\n")[0]
    assert max(map(len, listed.splitlines())) <= 80
    blocks = re.split(r"(?m)^(?=[ \d]\d  \[)", listed)[1:]
    count = len([*(CONFIG_DIR / "claim").glob("*.yaml")])
    assert [int(block[:2]) for block in blocks] == list(range(1, count + 1))
    assert all(2 <= block.count("\n    ") + 1 <= 5 for block in blocks)
    assert blocks[4].startswith(" 5  [contradicted] BERT with batch norm does not converge")
    assert "\n    - Not true for a small BERT:" in blocks[4]


def test_claims_can_be_shown_in_chinese(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert command.main(["2", "--zh"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("论断 2：在机器翻译中，批归一化比层归一化低 6.5 BLEU")
    assert (
        "\n  结论  成立（C：Multi30k 德译英，2+2 层）\n  实测  BLEU 之差 2.98 [2.67, 3.28]" in shown
    )
    assert max(map(cell_len, shown.splitlines())) <= 80
    assert command.main(["article", "1", "--zh"]) == 0
    assert "\n 2  [部分成立] 在机器翻译中" in capsys.readouterr().out


def test_the_claims_of_an_article_are_listed(capsys):
    ledger = json.loads((CONFIG_DIR.parent / "results" / "claims.json").read_text())
    theirs = [claim["id"] for claim in ledger if "article 3" in claim["articles"]]
    for words in (["article 3"], ["article", "3"]):
        assert command.main(words) == 0
        listed = re.findall(r"(?m)^([ \d]\d)  \[", capsys.readouterr().out)
        assert list(map(int, listed)) == theirs
    with pytest.raises(ValueError, match=r"no claim article 9; .* articles 1 to 5"):
        command.main(["article 9"])


def test_claims_that_mention_a_word_are_listed_one_per_line_of_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for words, code in ((["Padding"], 0), (["batch", "norm"], 0), (["填充", "--zh"], 0)):
        assert command.main(words) == code
        listed = capsys.readouterr().out.partition("\n\n")[0].splitlines()
        assert len(listed) > 1 and all(re.match(r"[ \d]\d  \[", line) for line in listed)
        assert max(map(cell_len, listed)) <= 80
    with pytest.raises(ValueError, match=r"no claim mentions 'paddign'. Did you mean padding"):
        command.main(["paddign"])


def test_a_single_claim_is_shown_with_its_answer_first_and_its_records(results, capsys):
    call(capsys, results, "--write")
    code, out, _ = call(capsys, results, "3")
    assert code == 0 and max(map(len, out.splitlines()[:12])) <= 80
    assert out.startswith("Claim 3: It is so.\n  answer      True.\n")
    assert "\n1. It is so.\n" in out and "results/made/small:ln\n" in out and "so_1" not in out
    # The correction counts all claims, even if only one is shown.
    assert plain(capsys, results, "3") == plain(capsys, results)[2:]
    with pytest.raises(ValueError, match="no claim 99; claims are numbered 1 to 3"):
        call(capsys, results, "99")


def test_the_saved_ledger_is_shown_without_the_records(results, capsys):
    again = rf"claims\.json: missing; normlab claims --write --results {results} writes it"
    with pytest.raises(ValueError, match=again):
        call(capsys, results)
    call(capsys, results, "--write")
    shown = call(capsys, results, "1")
    (results / "made" / "small" / "records.jsonl").unlink()
    assert call(capsys, results, "1") == shown
    for other in ("[<<<<<<< HEAD", '{"a": 1}', "[1]"):
        (results / "claims.json").write_text(other)
        with pytest.raises(ValueError, match=r"json: damaged \(.*\); normlab claims --write"):
            call(capsys, results)


def test_compute_runs_the_checks_and_write_saves_their_findings(results, capsys):
    now = plain(capsys, results, "1", "--compute")
    assert now[0]["parts"][1]["verdict"] == "supported" and not (results / "claims.json").exists()
    call(capsys, results, "--write")
    assert plain(capsys, results, "1") == now


def test_verify_reports_each_page_that_does_not_match_the_records(results, capsys):
    code, _, err = call(capsys, results, "--verify")
    again = f"then normlab claims --write --results {results}"
    assert code == 1 and err.count("missing; check what changed, ") == err.count(again) == 4
    code, out, _ = call(capsys, results, "--write")
    assert code == 0 and out.count("wrote ") == 4
    code, _, err = call(capsys, results, "--verify")
    assert code == 1 and f"{manifest.MANIFEST}: missing" in err
    manifest.accept(results, [results])
    assert call(capsys, results, "--verify")[0] == 0
    for name in ("claims.md", "summary.md", "claims.json"):
        text = (results / name).read_text("utf-8")
        (results / name).write_text(text.replace("1", "2", 1), "utf-8")
        code, _, err = call(capsys, results, "--verify")
        assert code == 1 and f"{results / name}: does not match the records" in err
        (results / name).write_text(text, "utf-8")


def test_verify_and_write_fail_after_a_score_was_changed_or_a_run_removed(results, capsys):
    call(capsys, results, "--write")
    manifest.accept(results, [results])
    first = next(iter(RECORDS))
    changed = replace(RECORDS[first], scores={"test/bleu": Score(99.0, True, 10)})
    for records in ({**RECORDS, first: changed}, dict(list(RECORDS.items())[1:])):
        write_pack(results / "made" / "small", records)
        assert call(capsys, results, "--verify")[0] == 1
        with pytest.raises(ValueError, match=r"records\.jsonl: changed .*: nothing was written"):
            call(capsys, results, "--write")


def test_a_damaged_line_is_reported_and_the_claims_are_still_shown(results, capsys):
    with (results / "made" / "small" / "records.jsonl").open("a") as file:
        file.write("{\n")
    code, out, err = call(capsys, results, "--compute", "--json")
    assert code == 1 and "records.jsonl, line 11" in err
    assert len(json.loads(out)) == 3
