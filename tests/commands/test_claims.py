"""`normlab claims` shows, verifies and writes the ledger."""

import json
import re

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from normlab.commands import claims as command
from normlab.config.folders import CONFIG_DIR
from normlab.records import manifest
from normlab.records.packed import Key, write_pack
from normlab.records.record import Score
from tests.claims.handmade_study import claim, configs, contrast, part, side

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
        "\n  结论  成立（C：Multi30k 德译英，2+2 层）\n  实测  BLEU 之差 -2.98 [-3.28, -2.67]"
        in shown
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
    with pytest.raises(ValueError, match=r"claim article 9 does not exist; .* articles 1 to 5"):
        command.main(["article 9"])


def test_claims_that_mention_a_word_are_listed_one_per_line_of_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for words, code in ((["Padding"], 0), (["batch", "norm"], 0), (["填充", "--zh"], 0)):
        assert command.main(words) == code
        listed = capsys.readouterr().out.partition("\n\n")[0].splitlines()
        assert len(listed) > 1 and all(re.match(r"[ \d]\d  \[", line) for line in listed)
        assert max(map(cell_len, listed)) <= 80
    spellings = []
    for words in ("batch norm", "batch-norm", "BatchNorm", "batchnorm"):
        assert command.main([words]) == 0
        spellings.append(capsys.readouterr().out)
    assert len({*spellings}) == 1 and len(spellings[0].splitlines()) > 10
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
    with pytest.raises(ValueError, match="claim 99 does not exist; claims are numbered 1 to 3"):
        call(capsys, results, "99")


def test_every_claim_can_be_shown_in_both_languages(capsys):
    ids = [int(path.name[:2]) for path in sorted((CONFIG_DIR / "claim").glob("*.yaml"))]
    for number in ids:
        for words in ([str(number)], [str(number), "--zh"]):
            assert command.main(words) == 0, (words, capsys.readouterr().err)
    assert len(ids) > 60


def test_a_single_claim_ends_with_the_meaning_of_its_grades(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert command.main(["2"]) == 0
    ending = capsys.readouterr().out.split("\n\n")[-1]
    assert ending.startswith("grades of evidence: A, the article's own experiment; B,")
    assert command.main(["2", "--zh"]) == 0
    assert "\n\n证据等级：A 为文章自己的实验；" in capsys.readouterr().out
    assert command.main(["article 1"]) == 0
    assert "grades of evidence" not in capsys.readouterr().out


def test_compute_says_that_the_claim_was_judged_again(results, capsys):
    call(capsys, results, "--write")
    computed = call(capsys, results, "1", "--compute")[1]
    again = f"judged again from the records in {results}"
    assert "".join(again.split()) in "".join(computed.split())  # the line is folded
    assert "judged again" not in call(capsys, results, "1")[1]


def test_the_saved_ledger_is_shown_without_the_records(results, capsys):
    again = rf"claims\.json is missing; normlab claims --write --results {results} creates it"
    with pytest.raises(ValueError, match=again):
        call(capsys, results)
    call(capsys, results, "--write")
    shown = call(capsys, results, "1")
    (results / "made" / "small" / "records.jsonl").unlink()
    assert call(capsys, results, "1") == shown
    for other in ("[<<<<<<< HEAD", '{"a": 1}', "[1]"):
        (results / "claims.json").write_text(other)
        with pytest.raises(ValueError, match=r"json is damaged \(.*\); normlab claims --write"):
            call(capsys, results)


def test_compute_runs_the_checks_and_write_saves_their_findings(results, capsys):
    now = plain(capsys, results, "1", "--compute")
    assert now[0]["parts"][1]["verdict"] == "supported" and not (results / "claims.json").exists()
    call(capsys, results, "--write")
    assert plain(capsys, results, "1") == now


def test_verify_reports_each_page_that_does_not_match_the_records(results, capsys):
    code, _, err = call(capsys, results, "--verify")
    again = f"missing; find out what changed, then run normlab claims --write --results {results}"
    assert code == 1 and err.count(again) == 4
    code, out, _ = call(capsys, results, "--write")
    assert code == 0 and out.count("wrote ") == 4
    code, _, err = call(capsys, results, "--verify")
    assert code == 1 and f"{manifest.MANIFEST} is missing" in err
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
        with pytest.raises(ValueError, match=r"records\.jsonl: changed .*; nothing was written"):
            call(capsys, results, "--write")


def test_a_damaged_line_is_reported_and_the_claims_are_still_shown(results, capsys):
    with (results / "made" / "small" / "records.jsonl").open("a") as file:
        file.write("{\n")
    code, out, err = call(capsys, results, "--compute", "--json")
    assert code == 1 and "records.jsonl, line 11" in err
    assert len(json.loads(out)) == 3
