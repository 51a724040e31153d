"""Records of older formats are brought up to date one version at a time."""

import json
from pathlib import Path

import pytest

from normlab.records.migration import FORMAT, STEPS, VERSION, migrated
from normlab.records.record import RunRecord
from tests.records.examples import record

RESULTS = Path(__file__).resolve().parents[2] / "results"
# Committed records of version 1, each with other parts than those before it.
WITHOUT_WEIGHTS = "health/toy/runs/toy-ln-pre-0379b8cb01/seed1/record.json"
OLDER = {
    WITHOUT_WEIGHTS: set(),
    "iwslt_norms/cpu600/records/multi30k-ln+bn-post-37a79e1cf4/seed1/record.json": set(),
    "fast_arithmetic/cpu/records/multi30k-bn-pre-f1370a9bad/seed1/record.json": set(),
    "bert_divergence/cpu/records/mlm-bn-post-4ef7cebec7/seed1/record.json": {"last_steps"},
}


PARTS = ("last_steps", "weights", "floors", "milestones")


@pytest.mark.parametrize("path", OLDER)
def test_a_committed_record_of_version_1_is_read_and_written_in_todays_format(path: str):
    text = (RESULTS / path).read_text(encoding="utf-8")
    old = json.loads(text)
    assert old["format"] == "normlab.record/1"
    found = RunRecord.from_json(text, origin=path)
    assert repr(RunRecord._read_by_key(text)) == repr(found)
    new = json.loads(found.to_json())
    parts = {key for key in ("last_steps", "weights", "floors") if new[key]}
    assert parts == OLDER[path]
    assert new == {**{key: {} for key in PARTS}, **old, "format": FORMAT}
    assert repr(RunRecord.from_json(found.to_json(), origin="here")) == repr(found)
    run = Path(path).parts
    assert found.run_id == f"{run[-3]}-{run[-2]}"  # its config is the same experiment


def test_there_is_a_step_from_each_version_to_the_next():
    assert sorted(STEPS) == list(range(1, VERSION))
    content = json.loads((RESULTS / WITHOUT_WEIGHTS).read_text(encoding="utf-8"))
    assert migrated(migrated(content)) == migrated(content)


def test_a_part_that_version_2_has_is_missed_in_it_and_not_in_version_1():
    content = json.loads(record().to_json())
    del content["weights"]
    with pytest.raises(ValueError, match="weights: missing"):
        RunRecord.from_json(json.dumps(content), origin="here")
    old = json.dumps({**content, "format": "normlab.record/1"})
    assert RunRecord.from_json(old, origin="here").weights == {}


def test_a_record_of_a_newer_version_says_so_and_is_not_called_damaged():
    newer = record().to_json().replace(FORMAT, f"normlab.record/{VERSION + 1}")
    with pytest.raises(ValueError, match=r"^here: format is .*newer normlab; update") as caught:
        RunRecord.from_json(newer, origin="here")
    assert not {"damaged", "remove"} & set(str(caught.value).replace(",", "").split())


@pytest.mark.parametrize("name", ["normlab.record/0", "normlab.study/1", "1", "normlab.record/x"])
def test_a_format_that_never_was_is_damage(name: str):
    with pytest.raises(ValueError, match=r"here: damaged record, format is .*; remove the file"):
        RunRecord.from_json(record().to_json().replace(FORMAT, name), origin="here")
