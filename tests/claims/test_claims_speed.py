"""Timings answer claims about speed, by the rounds of a committed benchmark."""

import json

import pytest

from normlab.claims.claim import load_all
from normlab.claims.html import page as html_page
from normlab.claims.ledger import ledger
from normlab.claims.markdown import page as markdown_page
from normlab.claims.runs import Runs
from normlab.claims.speed import Faster
from normlab.claims.timings import REPORT, read_timings
from normlab.registry import CONFIG_DIR
from tests.claims.ledgers import claim

RESULTS = CONFIG_DIR.parent / "results"


def candidate(name, milliseconds, *ratios):
    return {"name": name, "milliseconds": {"median": milliseconds}, "ratios_to_first": ratios}


def written(folder, *candidates, group="model, 1"):
    path = folder / REPORT
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "format": "normlab.bench.norms/1",
        "environment": {"device": "Some CPU", "precision": "bf16"},
        "groups": {group: candidates},
    }
    path.write_text(json.dumps(content))
    return Runs.read([folder], root=folder.parent)


def one(comparison, runs):
    (piece,) = comparison.evidence(runs)
    return piece


LN, BN = candidate("ln", 6.0, 1, 1, 1), candidate("bn", 5.4, 0.9, 0.91, 0.89)


def test_the_share_of_time_saved_decides_round_by_round(tmp_path):
    runs = written(tmp_path / "results", LN, BN)
    piece = one(Faster("bn", "ln", "model, 1", 0.0), runs)
    # Saved 0.10, 0.09, 0.11: mean 0.1, sd 0.01, half width 4.303 x 0.01 / sqrt(3) = 0.0248.
    assert piece.finding == "10.0% [7.5%, 12.5%] of the time saved (5.40 against 6.00 ms)"
    assert (piece.standing, piece.n, piece.repeats) == ("supports", 3, "round")
    assert (piece.setting, piece.records) == ("Some CPU bf16", ("results/bench/norms.json",))
    assert one(Faster("ln", "bn", "model, 1", 0.0), runs).standing == "contradicts"
    assert one(Faster("bn", "ln", "model, 1", 0.2), runs).standing == "contradicts"
    assert one(Faster("bn", "ln", "model, 1", 0.1), runs).standing == "undecided"


def test_two_that_are_both_not_the_first_are_compared_in_their_rounds(tmp_path):
    rms = candidate("rms", 5.0, 0.45, 0.455, 0.445)
    piece = one(Faster("rms", "bn", "model, 1", 0.0), written(tmp_path, LN, BN, rms))
    assert piece.numbers["saved"] == pytest.approx(0.5)


def test_too_few_rounds_and_names_that_are_not_there_decide_nothing(tmp_path):
    few = written(tmp_path, candidate("ln", 6.0, 1, 1), candidate("bn", 5.0, 0.8, 0.8))
    assert one(Faster("bn", "ln", "model, 1", 0.0), few).standing == "too few seeds"
    for missing in (Faster("gn", "ln", "model, 1", 0.0), Faster("bn", "ln", "training", 0.0)):
        assert one(missing, few).standing == "no records"
    assert one(Faster("bn", "ln", "model, 1", 0.0), Runs()).standing == "no records"


@pytest.mark.parametrize("text", ["{", "[]", '{"format": "normlab.bench.norms/2"}'])
def test_a_damaged_report_is_named_and_the_rest_is_read(tmp_path, text):
    written(tmp_path, LN)
    (tmp_path / REPORT).write_text(text)
    with pytest.raises(ValueError, match=r"norms\.json: damaged .* makes it again"):
        read_timings(tmp_path, named="here")
    runs = Runs.read([tmp_path], root=tmp_path)
    assert len(runs.damaged) == 1 and not runs.timings


def test_both_pages_show_rounds_the_machine_and_the_report(tmp_path):
    asked = claim(22, decided="study", comparisons=(Faster("bn", "ln", "model, 1", 0.0),))
    entries = ledger([asked], written(tmp_path / "results", LN, BN), None)
    assert entries[0].strength == "timed on Some CPU bf16: 1 for (3 rounds)"
    text = markdown_page(entries)
    assert "| supports | 3 | Some CPU bf16: [norms.json](bench/norms.json) |" in text
    shown = html_page(entries, studies={}, text="claims.md")
    assert "3 rounds" in shown and 'href="bench/norms.json"' in shown
    assert "normlab bench norms --json results/bench/norms.json" in shown


def test_every_timing_that_a_claim_asks_for_is_committed():
    runs = Runs.read([RESULTS], root=RESULTS.parent)
    claims = load_all(CONFIG_DIR / "claim")
    asked = [
        (each.name, comparison)
        for each in claims
        for comparison in each.comparisons
        if isinstance(comparison, Faster)
    ]
    assert asked
    for name, comparison in asked:
        (piece,) = comparison.evidence(runs)
        assert piece.measured, f"{name}: {piece.question}: {piece.finding}"
