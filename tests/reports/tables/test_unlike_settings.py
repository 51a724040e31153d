"""Settings in which rows differ although their names do not say so."""

from normlab.reports.tables.unlike_settings import unlike_settings
from tests.reports.tables.test_comparison import cell


def test_differing_settings_are_listed_once_and_an_option_covers_all_keys_below_it():
    changes = {"optim": {"lr": 1e-3}, "schedule": {"lr": 1e-3}, "norm": "bn"}
    usual = {"optim": {"lr": 5e-4}, "schedule": {"lr": 5e-4}}
    rows = {"bn": cell(25.0, **changes), "ln": cell(30.0, **usual)}
    (unlike,) = unlike_settings(rows).values()
    assert (unlike.key, unlike.rows) == ("optim.lr", {"0.001": ["bn"], "0.0005": ["ln"]})
    assert unlike.note.text == "NOT ALIKE: rows differ in optim.lr: 0.001 (bn); 0.0005 (ln)"
    assert unlike.note.brief == "rows differ in learning rate"
    other = cell(1.0, choices={"model": "small"}, model={"dim": 8, "heads": 2}, norm="bn")
    rows = {"bn": other, "ln": cell(1.0, model={"dim": 4, "heads": 1})}
    assert {key: each.rows for key, each in unlike_settings(rows).items()} == {
        "model": {"small": ["bn"], "tiny": ["ln"]}
    }


def test_axes_of_the_grid_and_settings_in_the_rows_names_may_differ():
    base, shorter = (cell(1.0, 2.0, budget={"steps": steps}) for steps in (200, 150))
    rows = {"a": base, "b": shorter}
    assert [*unlike_settings(rows)] == ["budget.steps"]
    assert unlike_settings(rows, ["budget.steps"]) == {}
    assert unlike_settings(rows, row_keys=dict.fromkeys(rows, ("budget.steps",))) == {}
