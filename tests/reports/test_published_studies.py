"""What is published can be read again, makes the same tables, and holds no private folder."""

import pytest
from msgspec.structs import replace

from normlab.records.packed import RECORDS, Key, Pack, write_pack
from normlab.reports.manifest import stale
from normlab.reports.published import (
    portable,
    publish,
    read,
    rendered,
)
from normlab.reports.study_table import build
from normlab.reports.table import comma_separated, latex, markdown
from tests.records.examples import changed
from tests.reports.tables import made, planned, runs, study

VALUES = {"ln": [30.0, 30.1], "bn": [20.0, None]}


@pytest.fixture
def folder(tmp_path):
    return publish(tmp_path, study(), "smoke", runs(VALUES))


def test_what_is_published_is_read_again(folder, tmp_path):
    assert folder == tmp_path / "norms" / "smoke"
    scale, found = read(folder)
    assert scale == "smoke"
    assert [(run.row, run.point, run.seed) for run, _ in found] == [
        ("ln", "", 1),
        ("ln", "", 2),
        ("bn", "", 1),
        ("bn", "", 2),
    ]
    assert found[3][1] is None
    for (_, was), (_, now) in zip(runs(VALUES), found, strict=True):
        if was is not None and now is not None:
            assert now.scores == was.scores and now.run_id == was.run_id


def test_the_tables_are_those_of_the_runs_themselves(folder):
    table = build(study(), "smoke", runs(VALUES))
    assert (folder / "table.md").read_text() == markdown(table)
    assert (folder / "table.tex").read_text() == latex(table)
    assert (folder / "table.csv").read_text() == comma_separated(table)
    assert stale(rendered(study(), folder)) == []


def test_publishing_again_changes_no_byte(folder, tmp_path):
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    publish(tmp_path, study(), "smoke", runs(VALUES))
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_records_that_belong_no_longer_are_removed(folder, tmp_path):
    notes = folder / "notes.md"
    notes.write_text("mine")
    publish(tmp_path, study(), "smoke", runs({"ln": [30.0]}))
    assert list(Pack(folder).records) == [("ln", "", 1)]
    assert notes.read_text() == "mine"


def add(tmp_path, record):
    publish(tmp_path, study(), "smoke", [(planned("ln", 3), record)], add=True)


def test_to_add_keeps_all_there_is(folder, tmp_path):
    add(tmp_path, made("ln", 3))
    found = [(run.row, run.seed, record is not None) for run, record in read(folder)[1]]
    assert found == [
        *(("ln", 1, True), ("bn", 1, True)),
        *(("ln", 2, True), ("bn", 2, False), ("ln", 3, True)),
    ]


@pytest.mark.parametrize("wrong", ["record", "manifest", "experiment"])
def test_to_add_writes_nothing_where_something_is_wrong(folder, tmp_path, wrong):
    record = made("ln", 3, batch_size=7) if wrong == "experiment" else made("ln", 3)
    if wrong == "record":
        (folder / RECORDS).write_text("{")
    if wrong == "manifest":
        (tmp_path / "MANIFEST.sha256").write_text("=======\n")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match=r"damaged|holds other experiments"):
        add(tmp_path, record)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_private_folders_are_shortened_at_any_depth(tmp_path):
    places = {"data_dir": "/home/me/data/iwslt", "runs_dir": "/home/me/runs"}
    task = {"corpus": {"data_dir": "/home/me/data/iwslt", "size": 3, "seed": 1}}
    record = changed(made("ln", 1), config={**made("ln", 1, **places).config, "task": task})
    folder = publish(tmp_path, study(), "smoke", [(planned("ln", 1), record)])
    assert "/home" not in (folder / RECORDS).read_text()
    config = read(folder)[1][0][1].config
    assert (config["data_dir"], config["runs_dir"]) == ("iwslt", "runs")
    assert config["task"]["corpus"] == {"data_dir": "iwslt", "size": 3, "seed": 1}
    assert portable({"data_dir": None, "a": [{"data_dir": "/x/y"}]}) == {
        "data_dir": None,
        "a": [{"data_dir": "y"}],
    }


def test_every_damaged_record_is_named(folder):
    text = (folder / RECORDS).read_text()
    (folder / RECORDS).write_text(text.replace('"params"', '"was"', 2))
    with pytest.raises(ValueError, match="damaged record") as caught:
        rendered(study(), folder)
    assert [f"line {n}: " in line for n, line in enumerate(str(caught.value).splitlines(), 1)] == [
        True,
        True,
    ]


def test_a_config_that_was_changed_does_not_fit_its_fingerprint(folder):
    records = Pack(folder).records
    key = Key("ln", "", 1)
    config = {**records[key].config, "batch_size": 7}
    write_pack(folder, records | {key: replace(records[key], config=config)})
    with pytest.raises(ValueError, match=r"records\.jsonl: .* has the fingerprint .* gives .*"):
        rendered(study(), folder)


def test_a_row_that_the_study_lost_is_named(folder):
    with pytest.raises(ValueError, match=r"no row 'bn' .*: there are ln; put it back, or"):
        rendered(study(rows={"ln": ("norm=ln",)}), folder)


def test_a_folder_that_is_no_study(tmp_path):
    for place in (tmp_path, tmp_path / "none"):
        with pytest.raises(ValueError, match=r"holds no records.jsonl: it is no published study"):
            read(place)
