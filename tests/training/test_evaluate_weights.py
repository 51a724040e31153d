"""Which weights are tested, and whether each score belongs to the weights in its name."""

from pathlib import Path

import pytest
from msgspec.structs import replace

import normlab
from normlab.records.record import Score
from normlab.records.store import RunStore
from normlab.training.evaluate import Evaluator, best_by, judged_by, path_in_record
from tests.tiny_runs import tiny

LOSSES, BLEUS = (1.0, 2.0, 3.0), (1.0, 9.0, 3.0)  # best at the first validation, and at the second


@pytest.fixture
def trained(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that trains with the given validation scores; its test scores are real."""
    real = Evaluator.scores
    calls: list[str] = []

    def train(*overrides: str, losses=LOSSES, bleus=BLEUS):
        def scores(self, model, split, **values):
            calls.append(split)
            found = real(self, model, split, **values)
            if split == "valid":
                number = calls.count("valid") - 1
                for name, series in (("valid/loss", losses), ("valid/bleu", bleus)):
                    found[name] = replace(found[name], value=series[number])
            return found

        calls.clear()
        with monkeypatch.context() as patch:
            patch.setattr(Evaluator, "scores", scores)
            words = tiny(corpus, tmp_path / "runs", "task.test_search.beam=1", *overrides)
            record = normlab.train(normlab.compose(words))
        store = RunStore(tmp_path / "runs")
        return record, store.run_dir(record.config), calls.count("test")

    return train


def of(record, path: str) -> dict[str, Score]:
    """Return the scores of a path such as `test/best_loss`, by their names."""
    count = path.count("/") + 2
    names = [name for name in record.scores if name.startswith(f"{path}/")]
    return {n.split("/")[-1]: record.scores[n] for n in names if len(n.split("/")) == count}


def evaluated(folder: Path, weights: str) -> dict[str, Score]:
    found = normlab.load_run(folder, weights=weights).evaluate("test")
    return {name.removeprefix("test/"): score for name, score in found.items()}


def test_the_last_weights_are_tested_and_the_best_as_well(trained):
    record, folder, decoded = trained()
    assert record.weights == {"last": 12, "best_loss": 4, "best_bleu": 8}
    assert decoded == 3
    assert of(record, "test") == evaluated(folder, "last")
    assert of(record, "test/best_bleu") == evaluated(folder, "best_bleu")
    losses = [of(record, path)["loss"] for path in ("test", "test/best_loss", "test/best_bleu")]
    assert len(set(losses)) == 3
    assert normlab.load_run(folder).weights == "last"


def test_validation_scores_belong_to_the_weights_in_their_names(trained):
    record, _, _ = trained()
    assert record.scores["valid/loss"].value == LOSSES[2]
    assert record.scores["valid/best_loss/loss"].value == LOSSES[0]
    assert record.scores["valid/best_bleu/loss"].value == LOSSES[1]


def test_the_best_weights_are_tested_on_request(trained):
    record, folder, decoded = trained("validate.test=best", "validate.select_by=bleu")
    assert record.weights == {"best": 8, "best_bleu": 8, "best_loss": 4, "last": 12}
    assert decoded == 3  # weights of the same step are scored once
    assert of(record, "test") == of(record, "test/best_bleu") == evaluated(folder, "best_bleu")
    assert of(record, "test/last") != of(record, "test")
    assert record.scores["valid/bleu"].value == BLEUS[1]
    assert normlab.load_run(folder).weights == "best"


def test_without_best_only_the_last_weights_are_tested_and_kept(trained):
    record, folder, decoded = trained("validate.best=false")
    assert record.weights == {"last": 12} and decoded == 1
    assert not [name for name in record.scores if "best" in name]
    assert [path.name for path in (folder / "checkpoints").iterdir()] == ["last.pt"]


def test_a_limit_scores_a_part_of_each_split_and_keeps_no_partial_translations(trained):
    record, folder, _ = trained("validate.best=false", "validate.limit=3")
    whole, _, _ = trained("validate.best=false")
    assert record.scores["test/bleu"].n < whole.scores["test/bleu"].n
    assert not (folder / "hypotheses.txt").exists()
    assert of(record, "test") == evaluated(folder, "last")
    assert "limit" in record.config["validate"] and "limit" not in whole.config["validate"]
    outputs = folder / "asked.txt"
    normlab.load_run(folder).evaluate("test", outputs=outputs)
    assert len(outputs.read_text().splitlines()) == 6


def test_a_smoke_run_scores_two_hundred_examples():
    assert normlab.compose(["scale=smoke"]).validate.limit == 200


def test_patience_ends_a_run_without_a_better_validation(trained):
    record, _, _ = trained("validate.patience=1")
    assert (record.outcome.reason, record.outcome.step) == ("patience", 8)


VALIDATE = {"average": 0, "test": "last", "best": True, "select_by": "chrf"}


@pytest.mark.parametrize(
    ("changes", "name", "kept"),
    [
        ({}, "last", ["loss", "bleu", "chrf"]),
        ({"average": 3}, "average", ["loss", "bleu", "chrf"]),
        ({"best": False}, "last", []),
        ({"best": False, "test": "best"}, "best", ["chrf"]),
        ({"select_by": "bleu"}, "last", ["loss", "bleu"]),
    ],
)
def test_the_config_decides_which_weights_are_tested_and_kept(changes, name, kept):
    validate = {**VALIDATE, **changes}
    assert judged_by(validate) == name
    assert best_by(validate, "bleu") == kept


@pytest.mark.parametrize(
    ("changes", "weights", "path"),
    [
        ({}, "last", "test/bleu"),
        ({}, "best", "test/best_chrf/bleu"),
        ({}, "best_loss", "test/best_loss/bleu"),
        ({"average": 3}, "average", "test/bleu"),
        ({"test": "best"}, "last", "test/last/bleu"),
        ({"test": "best"}, "best", "test/bleu"),
        ({"test": "best"}, "best_chrf", "test/bleu"),
    ],
)
def test_scores_of_the_weights_a_run_is_judged_by_have_no_weights_in_their_paths(
    changes, weights, path
):
    assert path_in_record("test/bleu", weights, {**VALIDATE, **changes}) == path
