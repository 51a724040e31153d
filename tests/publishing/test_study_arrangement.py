"""The runs of a study in the rows that it planned, with the name of its data."""

import pytest

from normlab.publishing.study_arrangement import study_arrangement
from normlab.reports.renaming import with_row_names
from normlab.studies.study import Scale
from tests.reports.handmade import made, run, study


@pytest.mark.parametrize(
    ("planned", "name"), [("toy", "Toy corpus"), ("multi30k", "downloaded text de-en")]
)
def test_the_name_of_the_data_comes_from_the_records_if_the_planned_data_were_not_used(
    planned, name
):
    scale = Scale((), (1,), 0.5, "built in", ("ln",), {}, data_name="Toy corpus")
    of = study(rows={"ln": ("norm=ln", f"task={planned}")}, scales={"smoke": scale})
    data = {"label": "downloaded text", "languages": ["de", "en"]}
    arrangement = study_arrangement(of, "smoke", [run(made("ln", 1, data=data), "ln")])
    assert arrangement.data_name == with_row_names(arrangement, {}, full=True).data_name == name


@pytest.mark.parametrize(("setting", "differs"), [("precision=bf16", False), ("task=toy", True)])
def test_pairs_may_differ_in_precision_only_if_a_row_sets_it(setting, differs):
    of = study(rows={"ln": ("norm=ln",), "low": ("norm=ln", setting)})
    assert study_arrangement(of, "smoke", ()).rules.precision is differs
