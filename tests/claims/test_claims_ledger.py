"""Verdicts, the command, and the committed page."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from normlab.claims.evidence import Evidence, strength, verdict
from normlab.commands.claims import main
from normlab.records.record import Score
from normlab.records.store import RunStore
from normlab.registry import CONFIG_DIR
from tests.records.examples import record

PAGE = CONFIG_DIR.parent / "results" / "claims.md"
PAGES = (PAGE, PAGE.with_suffix(".html"))


def pieces(*standings):
    return [Evidence("study", "q", "f", s, n=3, task="toy", scale="cpu") for s in standings]


@pytest.mark.parametrize(
    ("standings", "expected"),
    [
        (["supports", "supports"], "supported"),
        (["supports", "too few seeds", "no records"], "supported"),
        (["contradicts"], "contradicted"),
        (["contradicts", "undecided"], "contradicted"),
        (["supports", "contradicts"], "partly"),
        (["supports", "undecided"], "partly"),
        (["undecided"], "not measured"),
        (["too few seeds", "not comparable", "not computed"], "not measured"),
        ([], "not measured"),
    ],
)
def test_the_verdict_weighs_what_was_measured(standings, expected):
    assert verdict(pieces(*standings)) == expected


def test_the_strength_says_what_it_rests_on():
    found = pieces("supports", "supports", "undecided", "too few seeds", "no records")
    found += [Evidence("unit", "q", "f", "contradicts")]
    assert strength(found) == (
        "toy, scale=cpu: 2 for, 1 undecided (3 seeds); computed: 1 against; "
        "no records: 1; too few seeds: 1"
    )


@pytest.fixture
def results(tmp_path):
    """Return a folder of made-up records in which no norm trains well on Multi30k."""
    store = RunStore(tmp_path / "made-up")
    for seed, bleu in enumerate([35.3, 35.6, 35.1], 1):
        choices = {"task": "multi30k", "scale": "cpu"}
        kept = record(seed=seed, norm="none", bleu=bleu, choices=choices)
        store.write(kept, store.run_dir(kept.config))
    return store


def run(capsys, *argv):
    code = main(list(argv))
    out, err = capsys.readouterr()
    return code, out, err


def listed(capsys, *argv):
    code, out, err = run(capsys, "--json", *argv)
    return code, {claim["id"]: claim for claim in json.loads(out)["claims"]}, err


def test_one_claim_with_all_its_evidence(results, capsys):
    code, out, _ = run(capsys, "3", "--results", str(results.root))
    assert code == 0
    assert "Claim 3 (D0, D3): Without any normalization" in out
    assert "Verdict: contradicted (multi30k, scale=cpu: 2 against (3 seeds); no records: 2)" in out
    assert "diverged 0/3" in out and "35.3 [34.7, 36.0]" in out
    assert str(results.root) in out  # where the records lie


def test_runs_of_elsewhere_count_when_asked_for(results, tmp_path, capsys):
    empty = ["--results", str(tmp_path / "nothing")]
    _, without, _ = listed(capsys, "3", *empty)
    _, those, _ = listed(capsys, "3", *empty, "--runs-dir", str(results.root))
    _, twice, _ = listed(
        capsys, "3", "--results", str(results.root), "--runs-dir", str(results.root)
    )
    assert without[3]["verdict"] == "not measured"
    assert those[3]["verdict"] == "contradicted"
    assert those[3]["evidence"] == twice[3]["evidence"]  # a run found twice counts once


def test_damage_is_told_and_the_rest_is_shown(results, capsys):
    broken = results.root / "broken" / "record.json"
    broken.parent.mkdir()
    broken.write_text("{")
    code, claims, err = listed(capsys, "--results", str(results.root))
    assert code == 1 and str(broken) in err and "damaged record" in err
    assert len(claims) == 41 and claims[3]["verdict"] == "contradicted"


def test_two_versions_of_one_run_are_named(results, tmp_path, capsys):
    (first, *_) = results.entries()
    other = RunStore(tmp_path / "other")
    changed = replace(first[1], scores={"test/bleu": Score(1.0, True, 10)})
    other.write(changed, other.run_dir(changed.config))
    places = ["--results", str(results.root), "--runs-dir", str(other.root)]
    code, claims, err = listed(capsys, *places)
    assert code == 1 and len(claims) == 41
    assert f"{other.run_dir(changed.config)}: the same run as in {first[0]}" in err


def test_checks_are_computed_on_request(tmp_path, capsys):
    empty = ["--results", str(tmp_path)]
    _, waiting, _ = listed(capsys, "7", *empty)
    (first, *_) = waiting[7]["evidence"]
    assert first["standing"] == "not computed" and "--check" in first["finding"]
    assert waiting[7]["verdict"] == "not measured"
    _, computed, _ = listed(capsys, "7", "--check", *empty)
    assert computed[7]["verdict"] == "supported"
    assert computed[7]["evidence"][0]["numbers"] == pytest.approx({"mean": 1.5, "var": 3.25})


def test_the_table_has_every_claim(tmp_path, capsys):
    code, out, _ = run(capsys, "--results", str(tmp_path))
    numbers = [line.split()[0] for line in out.splitlines() if line.split()[:1]]
    assert code == 0 and [n for n in numbers if n.isdigit()][:41] == [str(n) for n in range(1, 42)]
    assert "contradicted, " in out and "--check computes" in out


def test_bad_requests_are_named(tmp_path):
    with pytest.raises(ValueError, match="no claim 99; there are 1 to 41"):
        main(["99"])
    with pytest.raises(ValueError, match="--write takes all claims and the committed records"):
        main(["7", "--write", str(tmp_path / "page.md")])
    with pytest.raises(ValueError, match=r"page.html: name the Markdown page, ending in .md"):
        main(["--write", str(tmp_path / "page.html")])


def test_help_has_examples(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0 and "normlab claims 7" in capsys.readouterr().out


def test_the_committed_pages_are_what_the_command_writes(tmp_path, capsys):
    code, out, _ = run(capsys, "--write", str(tmp_path / "claims.md"))
    assert code == 0 and out.count("wrote ") == 2
    for page in PAGES:
        stale = f"results/{page.name} is stale: run `normlab claims --write`"
        assert page.read_bytes() == (tmp_path / page.name).read_bytes(), stale


def test_pages_follow_the_records(results, tmp_path, capsys):
    def written(name):
        run(capsys, "--write", str(tmp_path / name), "--results", str(results.root))
        return (tmp_path / name).with_suffix(".html").read_text("utf-8").replace(name, "")

    first = written("first.md")
    assert "35.3 [34.7, 36.0]" in first and first == written("again.md")
    kept = record(seed=2, norm="none", bleu=1.0, choices={"task": "multi30k", "scale": "cpu"})
    results.write(kept, results.run_dir(kept.config))
    assert written("other.md") != first


def test_a_page_that_cannot_be_made_leaves_both_as_they_were(tmp_path, monkeypatch):
    from normlab.claims import html

    def broken(*_, **__):
        raise ValueError("no page")

    monkeypatch.setattr(html, "page", broken)
    with pytest.raises(ValueError, match="no page"):
        main(["--write", str(tmp_path / "claims.md"), "--results", str(tmp_path)])
    assert list(tmp_path.iterdir()) == []


def test_every_link_of_the_page_leads_somewhere():
    import re

    text = PAGE.read_text("utf-8")
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if link[0] != "#"]
    assert links
    for link in links:
        assert (PAGE.parent / link).exists(), link


def test_the_ledger_needs_no_torch():
    program = (
        "import sys\nfrom normlab.commands.claims import main\nmain(['1'])\n"
        "import normlab.claims.markdown, normlab.claims.html\n"
        "assert not {'torch', 'hydra'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
