"""Whether rows were trained on equal amounts of data."""

from msgspec.structs import replace

from normlab.reports.tables.data_seen import EqualBudget, EqualData, UnequalData, data_seen
from tests.reports.handmade import BLEU, build, made, run, study


def seen(tokens, steps, budget=None):
    """Return how the data of two rows compares, given their tokens and updates."""
    record = made("ln", 1, {BLEU: 30.0})
    if budget is not None:
        outcome = replace(record.outcome, reason="tokens")
        config = {**record.config, "budget": {"tokens": budget}}
        record = replace(record, outcome=outcome, config=config)
    runs = [
        run(
            replace(record, budget=replace(record.budget, tokens=amount, steps=updates)),
            *("ln", 1, f"batch_size={size}"),
        )
        for size, amount, updates in zip((8, 128), tokens, steps, strict=True)
    ]
    return data_seen(build(study(grid={"batch_size": {"8": (), "128": ()}}), runs).rows)


def test_the_note_on_unequal_data_names_the_rows_with_the_least_and_the_most():
    unequal = seen((1000, 16000), (40, 40))
    assert isinstance(unequal, UnequalData) and unequal.equal_updates and unequal.times == 16
    assert (unequal.least.row, unequal.most.row) == ("ln at batch size 8", "ln at batch size 128")
    start = "UNEQUAL tokens: in equal updates, ln at batch size 8 was trained on 1,000"
    assert unequal.note.text.startswith(start) and "budget.tokens=N" in unequal.note.text
    assert unequal.note.brief == "UNEQUAL tokens, up to 16.0 times as many"


def test_data_is_equal_up_to_a_tenth_and_only_mentioned_if_updates_differ():
    equal = seen((600_100, 599_800), (4779, 299))
    assert isinstance(equal, EqualData)
    assert equal.note.text.startswith("equal tokens: about 600,000 in each run")
    assert seen((1000, 1000), (40, 40)) is None


def test_runs_that_ended_at_the_same_budget_saw_equal_data():
    small = seen((3_030, 3_360), (24, 2), budget=3_000)
    assert isinstance(small, EqualBudget) and small.budget == 3_000
    assert small.note.text.startswith("equal tokens: 3,000 in each run's training")
