"""Published runs can be read back, give the same tables, and contain no private paths."""

import errno
import json
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

import normlab
from normlab.publishing import publish as publishing
from normlab.publishing.publish import publish
from normlab.publishing.published import read, rendered
from normlab.publishing.study_arrangement import study_arrangement
from normlab.records.manifest import stale
from normlab.records.packed import CURVES, RECORDS, Key, Pack, write_pack
from normlab.records.record import portable
from normlab.records.store import read_hypotheses, read_record
from normlab.reports.renaming import with_row_names
from normlab.reports.runs import rows_of_run, thinned
from normlab.reports.table_formats.comma_separated import comma_separated
from normlab.reports.table_formats.latex import latex_table
from normlab.reports.table_formats.markdown import markdown_table
from normlab.reports.tables.build_table import build_table
from normlab.training.rescore import rescored
from tests.records.examples import changed
from tests.reports.handmade import build, diverged, kept_run, made, run, run_rows, runs, study
from tests.tasks.sentences import translation
from tests.test_architecture import ROOT

VALUES = {"ln": [30.0, 30.1], "bn": [20.0, None]}


@pytest.fixture
def folder(tmp_path):
    return publish(tmp_path, study(), "smoke", runs(VALUES))


def files(root):
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_published_runs_can_be_read_back(folder, tmp_path):
    assert folder == tmp_path / "norms" / "smoke"
    found = {each.key: each.record for each in read(folder)}
    assert [*found] == [("ln", "", 1), ("bn", "", 1), ("ln", "", 2), ("bn", "", 2)]
    for was in runs(VALUES):
        now = found[was.key]
        assert (now and (now.scores, now.run_id)) == (
            was.record and (was.record.scores, was.record.run_id)
        )


def test_published_tables_match_the_runs_and_publishing_again_changes_nothing(folder, tmp_path):
    table = build(study(), runs(VALUES))
    assert (folder / "table.md").read_text() == markdown_table(table)
    in_full = with_row_names(study_arrangement(study(), "smoke", runs(VALUES)), {}, full=True)
    paper = latex_table(build_table(in_full), baseline=in_full.baseline, uncertainty="stars")
    assert (folder / "table.tex").read_text() == paper
    assert (folder / "table.csv").read_text() == comma_separated(table)
    assert stale(rendered(study(), folder)) == []
    before = files(tmp_path)
    publish(tmp_path, study(), "smoke", runs(VALUES))
    assert files(tmp_path) == before


def add(tmp_path, record, seed=3, **options):
    publish(tmp_path, study(), "smoke", [run(record, "ln", seed)], **options)


def test_publishing_a_new_seed_keeps_the_published_ones(folder, tmp_path):
    add(tmp_path, made("ln", 3))
    assert [(each.key.row, each.key.seed, each.record is not None) for each in read(folder)] == [
        *(("ln", 1, True), ("bn", 1, True)),
        *(("ln", 2, True), ("bn", 2, False), ("ln", 3, True)),
    ]


@pytest.mark.parametrize("wrong", ["record", "manifest", "experiment", "data"])
def test_a_new_seed_is_not_published_if_it_or_the_folder_is_wrong(folder, tmp_path, wrong):
    record = made("ln", 3, batch_size=7) if wrong == "experiment" else made("ln", 3)
    if wrong == "data":  # a later version of a generated corpus has a different vocabulary
        record = replace(record, params=record.params - 1)
    if wrong == "record":
        (folder / RECORDS).write_text("{")
    if wrong == "manifest":
        (tmp_path / "MANIFEST.sha256").write_text("=======\n")
    before = files(tmp_path)
    with pytest.raises(
        ValueError, match=r"damaged|has a different experiment|params is .*--replace"
    ):
        add(tmp_path, record)
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (replace(made("ln", 3), config={**made("ln", 3).config, "batch_size": 7}), "fingerprint"),
        (replace(made("ln", 3), seed=7), "ln with seed 3 has the record of .*-seed3"),
        (made("ln", 2), "ln with seed 3 has the record of .*-seed2"),
        (made("bn", 3), r"bn has the same record as ln, .*-bn-.*-seed3"),
    ],
)
def test_an_edited_or_copied_record_is_refused_before_anything_is_written(
    folder, tmp_path, record, problem
):
    before = files(tmp_path)
    with pytest.raises(ValueError, match=f"{problem}.*; remove this run and run the study again"):
        publish(tmp_path, study(), "smoke", [run(record, "ln", 3), run(made("bn", 3), "bn", 3)])
    assert files(tmp_path) == before


def test_runs_of_a_renamed_row_can_be_published(tmp_path):
    publish(tmp_path, study(), "smoke", [run(made("bn", 1, {"test/bleu": 1.0}), "bn", 1)])
    renamed = study(rows={"ln": ("norm=ln",), "batch norm": ("norm=bn",)})
    runs = [run(made("bn", s, {"test/bleu": 1.0 * s}), "batch norm", s) for s in (1, 2)]
    folder = publish(tmp_path, renamed, "smoke", runs)
    assert {key.row for key in Pack(folder).records} == {"bn", "batch norm"}


def test_a_record_copied_under_another_seed_is_refused(folder, tmp_path):
    copied = run(made("ln", 3, {"test/bleu": VALUES["ln"][1]}), "ln", 3)
    before = files(tmp_path)
    said = "ln has the same scores with seed 3 and with seed 2"
    with pytest.raises(ValueError, match=said):
        publish(tmp_path, study(), "smoke", [copied])
    assert files(tmp_path) == before
    records = {each.key: each.record for each in [*read(folder), copied]}
    write_pack(folder, records, {}, {})  # as by hand, and then accepted
    with pytest.raises(ValueError, match=said):
        read(folder)


def test_a_run_twice_in_a_packed_file_is_an_error(folder):
    lines = (folder / RECORDS).read_text().splitlines(keepends=True)
    (folder / RECORDS).write_text("".join([*lines, lines[0]]))
    with pytest.raises(ValueError, match=r"records.jsonl, line 5 has ln with seed 1 a second time"):
        read(folder)


def test_replacing_one_seed_by_a_run_on_different_data_is_an_error(folder, tmp_path):
    record = made("ln", 1)
    before = files(tmp_path)
    with pytest.raises(ValueError, match=r"params is .*run the published seeds again, too"):
        add(tmp_path, replace(record, params=record.params - 1), seed=1, replacing=print)
    assert files(tmp_path) == before


@pytest.fixture
def one(tmp_path):
    """Return a run with a curve and a translation, and the packed files of its publication."""
    place = kept_run(tmp_path / "run", run_rows(1.0))
    (place / "hypotheses.txt").write_text("ein\n")
    record = made("ln", 1, {"test/bleu": 36.6}, environment={"commit": "a" * 40, "dirty": False})
    published = run(record, "ln", folder=place)
    return published, publish(tmp_path / "results", study(), "smoke", [published])


def other_record(published):
    environment = {**published.record.environment, "commit": "b" * 40, "dirty": True}
    scores = made("ln", 1, {"test/bleu": 99.0}).scores
    return run(replace(published.record, scores=scores, environment=environment), "ln")


def other_curve(published):
    kept_run(published.folder, run_rows(2.0))


def other_translation(published):
    (published.folder / "hypotheses.txt").write_text("zwei\n")


@pytest.mark.parametrize("other", [other_record, other_curve, other_translation])
def test_a_published_run_changes_only_with_replace(one, tmp_path, other):
    published, _ = one
    results = tmp_path / "results"
    before = files(results)
    publish(results, study(), "smoke", [published])
    publish(results, study(), "smoke", [run(None, "ln")])
    assert files(results) == before, "publishing the same run or none changes nothing"
    changed_run = other(published) or published
    commit = "b" if other is other_record else "a"
    said = (
        rf"smoke:ln@seed1: the published run is from commit a{{10}}, the new run from "
        rf"commit {commit}{{10}}.*; omit published runs with .*--replace"
    )
    with pytest.raises(ValueError, match=said):
        publish(results, study(), "smoke", [changed_run, run(made("bn", 1), "bn")])
    assert files(results) == before
    lines = []
    publish(results, study(), "smoke", [changed_run], replacing=lines.append)
    assert len(lines) == 1 and "ln@seed1" in lines[0]
    assert files(results) != before
    publish(results, study(), "smoke", [changed_run], replacing=lines.append)
    assert len(lines) == 1, "publishing the same run again replaces nothing"


def test_publishing_does_not_accept_evidence_that_was_edited_by_hand(one, tmp_path):
    _, folder = one
    (folder / RECORDS).write_text((folder / RECORDS).read_text().replace("36.6", "99.0"))
    before = files(tmp_path / "results")
    with pytest.raises(ValueError, match=r"records\.jsonl: changed since it was published"):
        publish(tmp_path / "results", study(), "smoke", [run(made("bn", 1), "bn")])
    assert files(tmp_path / "results") == before
    assert (folder / CURVES).is_file()


def test_private_folders_in_a_config_are_shortened_at_any_depth(tmp_path):
    places = {"data_dir": "/home/me/data/iwslt", "runs_dir": "/home/me/runs"}
    task = {"corpus": {"data_dir": "/home/me/data/iwslt", "size": 3, "seed": 1}}
    start = {"start_from": {"run_dir": "/home/me/runs/toy-ln-pre-1a2b/seed1", "sha256": "0"}}
    config = {**made("ln", 1, **places).config, "task": task, **start}
    folder = publish(tmp_path, study(), "smoke", [run(changed(made("ln", 1), config=config), "ln")])
    assert "/home" not in (folder / RECORDS).read_text()
    config = read(folder)[0].record.config
    assert (config["data_dir"], config["runs_dir"]) == ("iwslt", "runs")
    assert config["task"]["corpus"] == {"data_dir": "iwslt", "size": 3, "seed": 1}
    assert config["start_from"] == {"run_dir": "toy-ln-pre-1a2b/seed1", "sha256": "0"}
    assert portable({"a": [{"data_dir": "/x/y"}]}) == {"a": [{"data_dir": "y"}]}


def test_committed_configs_contain_no_private_folder():
    for path in sorted((ROOT / "results").glob(f"*/*/{RECORDS}")):
        for line in path.read_text("utf-8").splitlines():
            config = json.loads(line).get("config", {})
            assert config == portable(config), path


def test_a_row_missing_from_the_study_and_a_folder_without_records_are_errors(folder, tmp_path):
    with pytest.raises(ValueError, match=r"no row 'bn'; restore it, or"):
        rendered(study(rows={"ln": ("norm=ln",)}), folder)
    with pytest.raises(
        ValueError, match=r"is not a published study, because it has no records.jsonl"
    ):
        read(tmp_path)


def test_an_edited_config_does_not_match_its_fingerprint(folder):
    records = Pack(folder).records
    key = Key("ln", "", 1)
    config = {**records[key].config, "batch_size": 7}
    write_pack(folder, records | {key: replace(records[key], config=config)})
    with pytest.raises(ValueError, match=r"the fingerprint of .* does not match its config"):
        rendered(study(), folder)


# Curves -------------------------------------------------------------------------------------------


def steps(rows):
    return [row["step"] for row in rows]


def published_one(tmp_path, folder, record=None):
    """Publish one run and return its address."""
    kept = run(record or made("ln", 1, {"test/bleu": 1.0}), "ln", folder=folder)
    of = Pack(publish(tmp_path / "results", study(), "smoke", [kept], replacing=lambda line: None))
    return of.addresses[Key("ln", "", 1)]


def test_curves_are_published_with_their_runs_and_load_as_a_table(tmp_path):
    places = [kept_run(tmp_path / str(n), run_rows(n)) for n in (1, 2)]
    made_of = [
        run(made("ln", seed, {"test/bleu": 1.0 * seed}), "ln", seed, folder=place)
        for seed, place in enumerate(places, 1)
    ]
    folder = publish(tmp_path, study(), "smoke", made_of)
    found = normlab.load_records(folder)
    frame = found.curves("train/loss", "valid/loss")
    for seed, place in zip((1, 2), found.folders, strict=True):
        rows = thinned(run_rows(seed))
        assert rows_of_run(place) == rows
        assert frame[frame["seed"] == seed]["step"].tolist() == sorted(set(steps(rows)))
    publish(tmp_path, study(), "smoke", runs({"ln": [1.0]}), replacing=lambda line: None)
    assert [key.seed for key in Pack(folder).curves] == [2]


def test_damaged_rows_of_a_run_are_an_error_before_anything_is_written(tmp_path):
    place = kept_run(tmp_path / "run", run_rows(1.0))
    (place / "metrics.jsonl").write_text("{\n{}\n")
    with pytest.raises(ValueError, match=r"metrics\.jsonl, line 1 is not"):
        publish(tmp_path / "out", study(), "smoke", [run(made("ln", 1), "ln", folder=place)])
    assert not (tmp_path / "out").exists()


# Translations -----------------------------------------------------------------------------------


def test_published_translations_reproduce_the_scores_of_their_record(tmp_path):
    task = translation()
    lines = [line.replace(" the", "", 1) for line in task.data.texts["test"].target]
    folder = kept_run(tmp_path / "run", run_rows(1.0))
    (folder / "hypotheses.txt").write_text("".join(f"{line}\n" for line in lines))
    scores = {f"test/{name}": score for name, score in task.score_lines("test", lines).items()}
    record = replace(made("ln", 1), scores=scores)
    place = published_one(tmp_path, folder, record)
    found, kept = rescored(place, task), read_record(place).scores
    assert found == kept and 0 < found["test/bleu"].value < 100
    (folder / "hypotheses-test_2017.txt").write_text("one line\n")
    place = published_one(tmp_path, folder, record)
    assert read_hypotheses(place) == {"test": lines, "test_2017": ["one line"]}
    place = published_one(tmp_path, folder, diverged(record, 45))
    assert read_hypotheses(place) == {}, "a run that was not tested has no translations"
    with pytest.raises(ValueError, match=r"has no hypotheses\.txt"):
        rescored(place, task)


def test_publishing_again_after_a_full_disk_completes_the_pages(tmp_path, monkeypatch):
    full = OSError(errno.ENOSPC, "No space left on device")
    with monkeypatch.context() as patch:
        patch.setattr(publishing, "write_files", Mock(side_effect=full))
        with pytest.raises(OSError, match="No space left"):
            publish(tmp_path, study(), "smoke", runs(VALUES))
    folder = publish(tmp_path, study(), "smoke", runs(VALUES))
    assert len(read(folder)) == 4 and stale(rendered(study(), folder)) == []
