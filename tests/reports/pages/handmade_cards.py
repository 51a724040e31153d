"""Cards written by hand, and the records of their short runs."""

import json

import msgspec

from normlab.records.packed import Key, write_pack
from normlab.records.record import Score
from normlab.reports.card_file import FORMAT, CardContent, read_card
from tests.records.examples import record


def picture(**found):
    return card_of("x", [0.1, 0.2])["findings"]["translation"] | found


def card_of(name, losses, *, sees_later=False, **board):
    by_seed = {str(seed): loss for seed, loss in enumerate(losses, 1)}
    worse = {seed: -loss for seed, loss in by_seed.items()}  # BLEU, where higher is better
    scores = {"test/bleu": worse, "test/nll": by_seed}
    values = {"steps": 6, "scores": scores, "floors": {}, "curves": {"1": [[3, 2.0], [6, 1.5]]}}
    values["higher_is_better"] = {"test/nll": False, "test/bleu": True}
    values["diverged"] = {} if losses else {"1": 4}
    values["runs"] = {seed: run.run_id for seed, run in runs_by_seed(name, losses).items()}
    found = {"question": "?", "answer": "so", "values": values, "columns": [], "rows": []}
    found |= {"board": board, "applies": True}
    stepwise = found | {"values": {"eval": {"same": not sees_later}}, "board": {}}
    return {
        "format": FORMAT,
        "name": name,
        "description": f"{name} <of> tests.",
        "overrides": [f"norm={name}"],
        "scale": "small",
        "seeds": [1, 2],
        "norm": {},
        "environment": {"commit": "abc"},
        "findings": {"translation": found, "stepwise": stepwise},
    }


def content_of(values):
    """Return the content of a card, given the values of its file."""
    return CardContent(**{key: value for key, value in values.items() if key != "format"})


def runs_by_seed(norm, losses, **changes):
    """Return the records of short runs by seed."""
    return {
        str(seed): replace_scores(record(norm=norm, seed=seed, bleu=-loss, **changes), loss)
        for seed, loss in enumerate(losses, 1)
    }


def replace_scores(run, loss):
    return msgspec.structs.replace(run, scores={**run.scores, "test/nll": Score(loss, False, 9)})


def written(folder, content, losses, **changes):
    """Write a card and the records of its short runs, and return the card."""
    home = folder / content["name"]
    runs = runs_by_seed(content["name"], losses, **changes).values()
    write_pack(home, {Key("toy", "", run.seed): run for run in runs})
    (home / "card.json").write_text(json.dumps(content))
    return read_card(home / "card.json")
