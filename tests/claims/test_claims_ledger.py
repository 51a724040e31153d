"""Corrections within a study, verdicts of claims, and the command that shows them."""

import json
import subprocess
import sys

import pytest
from msgspec.structs import replace

from normlab.claims.evidence import Evidence, read_computed, to_json
from normlab.claims.ledger import NOT_SURVIVED, ledger, verdict
from normlab.claims.pages import measure_text
from normlab.claims.runs import Runs, _copy
from normlab.commands import claims as command
from normlab.config.registry import CONFIG_DIR
from normlab.records.packed import Key, write_pack
from normlab.records.record import Score
from normlab.records.store import RunStore
from normlab.reports import manifest
from tests.claims.made import CONTRAST, claim, configs, contrast, decided, part, run, side


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (["supported", "supported"], "supported"),
        (["contradicted"], "contradicted"),
        (["contradicted", "no difference"], "contradicted"),
        (["supported", "contradicted"], "mixed"),
        (["supported", "no difference"], "mixed"),
        (["supported", "undecided"], "mixed"),
        (["contradicted", "not measured"], "mixed"),
        (["undecided", "not measured"], "undecided"),
        (["not measured"], "not measured"),
    ],
)
def test_the_verdict_of_a_claim_follows_from_its_parts(parts, expected):
    assert verdict(parts) == expected
    assert verdict(parts[::-1]) == expected


def close(seed):
    """Return the figure of a side that is better by about 0.1, p 0.0012 against 0."""
    return 30.0 - 0.1 + (0.0, 0.025, -0.025, 0.03, -0.03)[seed - 1]


def test_a_direction_is_shown_only_where_it_survives_the_correction(tmp_path):
    records = side("ln", 30.0) + [run(k, "bn", close(k)) for k in range(1, 6)]
    root = configs(tmp_path)
    one = claim(root, contrast(margin=0.12))
    (alone,) = ledger([one], Runs(root, records))
    assert alone.primary[0].reason == "the direction is shown, its size is open"
    assert alone.primary[0].finding.p_direction < 0.01
    other = claim(
        root, *(contrast(margin=0.12, worse={"norm": "none"}) for _ in range(9)), number=2
    )
    among_ten, _ = ledger([one, other], Runs(root, records))
    assert "these seeds would have shown" in among_ten.primary[0].reason


def test_p_values_are_corrected_within_a_study_over_all_claims(tmp_path):
    records = side("ln", 30.0) + [run(k, "bn", close(k)) for k in range(1, 6)]
    root = configs(tmp_path)
    one = claim(root, contrast(margin=0))
    (alone,) = ledger([one], Runs(root, records))
    outcome = alone.primary[0]
    assert outcome.verdict == "supported"
    assert outcome.finding.p_look == pytest.approx(5 * outcome.finding.p)
    assert outcome.p_holm == pytest.approx(outcome.finding.p_look)
    other = claim(root, *(contrast(margin=0, worse={"norm": "none"}) for _ in range(9)), number=2)
    first, second = ledger([one, other], Runs(root, records))
    corrected = first.primary[0]
    assert corrected.compared == 10
    assert corrected.p_holm == pytest.approx(min(1.0, 10 * outcome.finding.p_look))
    assert (corrected.verdict, corrected.reason) == ("undecided", NOT_SURVIVED)
    assert corrected.finding.verdict == "supported"
    # What the correction leaves open has a command, and what it leaves decided has none.
    more = "`normlab study run made scale=small seeds=6-8` (9 runs, about 0.9 h"
    assert measure_text(corrected).startswith(more)
    assert outcome.finding.command is None and measure_text(outcome) == ""
    assert second.verdict == "not measured"


def test_secondary_endpoints_are_neither_counted_nor_corrected(tmp_path):
    records = side("ln", 30.0) + side("bn", 28.0)
    beside = [{"contrast": {**CONTRAST, "margin": 5}}] * 3
    plain = decided(tmp_path, records, contrast())
    entry = decided(tmp_path, records, contrast() | {"secondary": beside})
    assert entry.verdict == "supported" and len(entry.secondary) == 3
    assert entry.primary[0].p_holm == plain.primary[0].p_holm
    assert [each.p_holm for each in entry.secondary] == [None] * 3


def test_a_figure_that_the_interval_holds_is_not_corrected_away(tmp_path):
    body = {"study": "made", "scale": "small", "score": "test/bleu", "of": {"norm": "bn"}}
    each = part({"document": {**body, "value": 30, "data": {"task": "toy"}}}, "figure")
    entry = decided(tmp_path, side("bn", 30.0, 12), each, contrast())
    assert entry.primary[0].verdict == "supported"


def test_a_check_contradicts_by_one_finding_and_may_be_asked_for_some(tmp_path):
    found = {
        "a.b": [
            Evidence("bn: it moves", "it moves", "supports"),
            Evidence("ln: it moves", "it does not", "contradicts"),
        ]
    }
    some = part({"computed": {"check": "a.b", "only": ["bn"]}}, "definition")
    entry = decided(tmp_path, [], part({"computed": "a.b"}), some, computed=found)
    assert [each.verdict for each in entry.primary] == ["contradicted", "supported"]
    assert entry.verdict == "mixed" and entry.grades == "D"
    waiting = decided(tmp_path, [], some)
    assert waiting.primary[0].reason == "not computed"
    none = decided(
        tmp_path, [], part({"computed": {"check": "a.b", "only": ["x"]}}), computed=found
    )
    assert none.verdict == "not measured" and "bn: it moves; ln" in none.primary[0].reason


def test_what_checks_found_is_kept_without_the_noise_of_rounding(tmp_path):
    pieces = [Evidence("q", "f", "supports", {"moved": 0.2123456, "noise": 3e-17})]
    path = tmp_path / "computed.json"
    path.write_text(to_json({"a.b": pieces}))
    (piece,) = read_computed(path)["a.b"]
    assert piece.numbers == {"moved": 0.2123, "noise": 0.0} and piece.question == "q"
    assert read_computed(tmp_path / "nothing.json") == {}
    path.write_text("{")
    with pytest.raises(ValueError, match=r"damaged .*; recreate it with .* --write"):
        read_computed(path)


@pytest.fixture
def laboratory(tmp_path, monkeypatch):
    """Return a checkout of one study, three claims and a folder of results."""
    root = configs(tmp_path / "configs")
    claim(root, contrast(), part({"computed": "padding.pollutes"}, "definition"))
    claim(root, part({"awaits": "There are no pictures."}), number=2)
    claim(root, contrast(margin=5), number=3)
    store = RunStore(tmp_path / "results")
    for record in side("ln", 30.0) + side("bn", 28.0):
        kept(store, record)
    monkeypatch.setattr(command, "CONFIG_DIR", root)
    monkeypatch.setattr(command, "_CHECKOUT", tmp_path)
    return store


def kept(store, record):
    return store.write(record, store.run_dir(record.config))


def call(capsys, store, *argv):
    code = command.main([*argv, "--results", str(store.root)])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_list_has_every_claim_within_80_columns(laboratory, capsys):
    code, out, _ = call(capsys, laboratory)
    assert code == 0 and max(map(len, out.splitlines())) <= 80
    listed = out.partition("\n\n")[0].splitlines()
    starts = [line.split()[0] for line in listed if line[:2].strip().isdigit()]
    assert starts == ["1", "2", "3"]
    assert "so 1: " in out and "There are no pictures." in out


def test_a_claim_is_corrected_for_the_others_whichever_is_shown(laboratory, capsys):
    _, listed, _ = call(capsys, laboratory, "--json")
    _, alone, _ = call(capsys, laboratory, "1", "--json")
    assert json.loads(alone)["claims"] == json.loads(listed)["claims"][:1]


def test_one_claim_with_all_that_decides_it(laboratory, capsys):
    code, out, _ = call(capsys, laboratory, "3")
    assert code == 0 and max(map(len, out.splitlines()[:12])) <= 80
    said = " ".join(out.split())
    assert "Claim 3 (D0): It is so." in said


def test_checks_are_computed_on_request_and_kept_by_write(laboratory, capsys):
    waiting = json.loads(call(capsys, laboratory, "1", "--json")[1])["claims"][0]["parts"][1]
    assert (waiting["verdict"], waiting["primary"]["reason"]) == ("not measured", "not computed")
    computed = json.loads(call(capsys, laboratory, "1", "--compute", "--json")[1])
    assert computed["claims"][0]["parts"][1]["verdict"] == "supported"
    call(capsys, laboratory, "--write")
    kept_now = json.loads(call(capsys, laboratory, "1", "--json")[1])
    assert kept_now["claims"][0]["parts"][1]["verdict"] == "supported"


def test_check_names_each_page_that_is_not_what_the_records_give(laboratory, capsys):
    folder = laboratory.root
    code, _, err = call(capsys, laboratory, "--verify")
    assert (
        code == 1 and err.count(f"missing; normlab claims --write --results {folder} makes it") == 3
    )
    code, out, _ = call(capsys, laboratory, "--write", str(folder / "claims.md"))
    assert code == 0 and out.count("wrote ") == 3
    code, _, err = call(capsys, laboratory, "--verify")
    assert code == 1 and f"{manifest.MANIFEST}: missing" in err
    manifest.accept(folder, [folder])
    assert call(capsys, laboratory, "--verify")[0] == 0
    for name in ("claims.md", "summary.md"):
        text = (folder / name).read_text("utf-8")
        (folder / name).write_text(text.replace("#claim-1", "#claim-2", 1), "utf-8")
        code, _, err = call(capsys, laboratory, "--verify")
        assert code == 1 and f"{folder / name}: does not follow from the records" in err
        (folder / name).write_text(text, "utf-8")


def test_check_sees_a_score_that_was_changed_and_a_run_that_was_removed(laboratory, capsys):
    call(capsys, laboratory, "--write", str(laboratory.root / "claims.md"))
    manifest.accept(laboratory.root, [laboratory.root])
    folder, first = laboratory.entries()[0]
    changed = replace(first, scores={"test/bleu": Score(99.0, True, 10)})
    laboratory.write(changed, folder)
    assert call(capsys, laboratory, "--verify")[0] == 1
    with pytest.raises(ValueError, match=r"record\.json: changed .*: nothing is written"):
        call(capsys, laboratory, "--write", str(laboratory.root / "claims.md"))
    laboratory.write(first, folder)
    assert call(capsys, laboratory, "--verify")[0] == 0
    (folder / "record.json").unlink()
    assert call(capsys, laboratory, "--verify")[0] == 1


def test_runs_of_elsewhere_count_when_asked_for_and_once(laboratory, tmp_path, capsys):
    empty = RunStore(tmp_path / "nothing")
    empty.root.mkdir()
    there = ["--runs-dir", str(laboratory.root)]
    verdicts = [
        json.loads(call(capsys, store, "3", "--json", *more)[1])["claims"][0]["parts"][0]["primary"]
        for store, more in ((empty, []), (empty, there), (laboratory, there))
    ]
    assert verdicts[0]["reason"] == "no runs" and verdicts[1]["reason"] != "no runs"
    assert verdicts[1] == verdicts[2]


def test_damage_is_told_and_the_rest_is_shown(laboratory, capsys):
    broken = laboratory.root / "broken" / "record.json"
    broken.parent.mkdir()
    broken.write_text("{")
    code, out, err = call(capsys, laboratory, "--json")
    assert code == 1 and str(broken) in err and "damaged record" in err
    assert len(json.loads(out)["claims"]) == 3


def test_two_versions_of_one_run_are_named_and_neither_counts(laboratory, tmp_path, capsys):
    folder, first = laboratory.entries()[0]
    other = RunStore(tmp_path / "other")
    changed = replace(first, scores={"test/bleu": Score(1.0, True, 10)})
    path = kept(other, changed)
    code, out, err = call(capsys, laboratory, "3", "--json", "--runs-dir", str(other.root))
    assert code == 1 and f"{path.parent}: the same run as in " in err
    (found,) = json.loads(out)["claims"]
    assert found["parts"][0]["verdict"] == "not measured" and folder.is_dir()


def test_bad_requests_are_named(laboratory, tmp_path):
    with pytest.raises(ValueError, match="no claim 99; there are 1 to 3"):
        command.main(["99"])
    for name in ("--write", "--verify"):
        with pytest.raises(ValueError, match=f"{name} takes all claims and the committed records"):
            command.main(["1", name])
    with pytest.raises(ValueError, match=r"page.html: name the Markdown page, ending in .md"):
        command.main(["--write", str(tmp_path / "page.html")])
    for name in ("--results", "--runs-dir"):
        with pytest.raises(ValueError, match="nowhere: no such folder"):
            command.main([name, "nowhere"])


def test_a_run_published_with_a_pilot_alone_is_no_evidence():
    """The pilot of warmup has cells that its counted scale plans as well."""
    results = CONFIG_DIR.parent / "results"
    runs = Runs.read([results], root=CONFIG_DIR.parent, configs=CONFIG_DIR)
    assert runs.of_study("warmup", "one_rate").records
    counted = runs.of_study("warmup", "small").records
    for record in counted:
        assert ("warmup", "small") in runs.published[_copy(record)]


def test_the_same_run_of_a_pilot_does_not_stand_in_for_one_made_anew_by_other_code(tmp_path):
    results = CONFIG_DIR.parent / "results"
    counted = RunStore(results / "warmup" / "one_rate")
    plan = Runs(CONFIG_DIR).plan("warmup", "small")
    pilot = next(record for _, record in counted.entries() if plan.holds(record))
    anew = replace(pilot, numerics="other")
    row = {Key("ln", "", pilot.seed): pilot}
    write_pack(tmp_path / "results" / "warmup" / "one_rate", row)
    path = kept(RunStore(tmp_path / "runs"), anew)
    places = [tmp_path / "results", tmp_path / "runs"]
    runs = Runs.read(places, root=CONFIG_DIR.parent, configs=CONFIG_DIR)
    (found,) = runs.of_study("warmup", "small").records
    assert found.numerics == "other" and runs.folder(found) == str(path.parent)
    (first,) = runs.of_study("warmup", "one_rate").records
    assert first.numerics == pilot.numerics


def test_the_ledger_needs_no_torch():
    program = (
        "import sys\nfrom normlab.commands.claims import main\nmain([])\n"
        "import normlab.claims.pages\n"
        "assert not {'torch', 'hydra'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
