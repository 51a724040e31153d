"""The table of trials by rate."""

from normlab.studies.published_trials import notes, table


def test_the_table_of_losses_by_rate_ends_with_the_sensitivity_to_the_rate():
    def trial(value, score, first=8.0, status="finished"):
        shown = {"value": value, "score": score, "status": status, "step": None}
        return {**shown, "first_loss": first, "seconds": 1.0, "commits": ["0a1b"]}

    tried = [trial("1e-3", 4.0), trial("1e-2", 3.0), trial("1e-1", None, status="diverged")]
    tuning = {"key": "optim.lr", "score": "valid/loss", "values": ["1e-3", "1e-2", "1e-1"]}
    tuning |= {"seeds": [101], "overrides": []}
    found = {"tuning": tuning, "rows": [{"row": "ln", "point": "", "chosen": "1e-2"}]}
    found["rows"][0]["trials"] = tried
    assert table(found).splitlines()[-1] == "| ln | 4 | 3 | diverged | 1e-2 | 2 |"
    assert any("Wortsman" in line for line in notes(found))
    tried[2] = trial("1e-1", None, first=None, status="pruned")
    assert "sensitivity" not in table(found) + "".join(notes(found))
    tuning["score"], tried[2] = "valid/bleu", trial("1e-1", 5.0)
    assert "sensitivity" not in table(found)
