"""Publishing a queue: other experiments are unchanged, and a problem does not stop the runs."""

import pytest

from normlab.commands import study as command
from normlab.publishing.published import read
from normlab.records import manifest
from normlab.records.packed import RECORDS
from normlab.studies.load import load_study
from normlab.studies.study_queue import StudyQueue
from tests.studies.queues import STUDY, bleu, plan, run_queue

RESULTS = ("--publish", "results")
OTHER = "budget.steps=7"
CONFLICT = "<<<<<<< HEAD\n"


@pytest.fixture
def folder(place):
    plan(place, bleu(3.0), range(1, 4))
    study = load_study("one", place.folder / "configs")
    place.plan(study.planned("smoke", seeds=[1], extra=[OTHER]), bleu(3.0))
    return place.folder / "results" / "one" / "smoke"


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def seeds(folder, row="bn"):
    return [each.key.seed for each in read(folder) if each.key.row == row and each.record]


@pytest.mark.parametrize("verb", ["run", "publish"])
def test_a_different_experiment_at_a_published_row_is_refused_before_any_run(
    place, folder, capsys, verb
):
    run_queue(capsys, "one", *RESULTS)
    before = contents(folder.parents[1])
    place_of_results = "--publish" if verb == "run" else "--results"
    said = (
        r"results/one/smoke has a different experiment for ln \(toy-ln-pre-\w+\) than this run "
        r"\(toy-ln-.*\); remove the overrides that differ, or pass another folder to --publish"
    )
    with pytest.raises(ValueError, match=said):
        command.main([verb, "one", "seeds=1", OTHER, place_of_results, "results"])
    assert len(place.lines("calls")) == 4 and contents(folder.parents[1]) == before
    assert run_queue(capsys, "one", "seeds=1", OTHER, "--publish", "elsewhere")[0] == 0


@pytest.mark.parametrize("verb", ["run", "publish"])
def test_publishing_another_run_of_a_published_seed_is_refused_before_any_run(
    place, folder, capsys, verb
):
    run_queue(capsys, "one", "seeds=1", *RESULTS)
    before = contents(folder.parents[1])
    again = ["seeds=1", "runs_dir=again"]
    study = load_study("one", place.folder / "configs")
    place.plan(study.planned("smoke", seeds=[1], extra=["runs_dir=again"]), bleu(9.0))
    if verb == "publish":  # an earlier run, in another folder
        run_queue(capsys, "one", *again, "--publish", "elsewhere")
    calls = len(place.lines("calls"))
    target = "--publish" if verb == "run" else "--results"
    said = r"results/one/smoke:ln@seed1.* commit c0ffee.*; omit published runs with"
    with pytest.raises(ValueError, match=said):
        command.main([verb, "one", *again, target, "results"])
    assert len(place.lines("calls")) == calls and contents(folder.parents[1]) == before
    assert command.main([verb, "one", *again, target, "results", "--replace"]) == 0
    out = capsys.readouterr().out
    assert [
        line.count("@seed1: the published run is from commit c0ffee")
        for line in out.splitlines()
        if line.startswith("replaced: ")
    ] == [1, 1]
    assert contents(folder.parents[1]) != before


def test_a_published_row_that_the_study_file_lacks_is_kept(place, folder, capsys):
    file = place.folder / "configs" / "study" / "one.yaml"
    old, rows = file.read_text(), "{ln: [norm=ln], bn: [norm=bn], new: [norm=rms]}"
    file.write_text(STUDY.format(name="one", rows=rows, seeds="[1]"))
    plan(place, bleu(3.0), range(1, 4))
    run_queue(capsys, "one", *RESULTS)
    file.write_text(old)
    assert run_queue(capsys, "one", *RESULTS)[0] == 0
    assert seeds(folder, "new") == [1] and seeds(folder) == [1, 2]
    assert "| new |" in (folder / "table.md").read_text()
    assert manifest.problems(folder.parents[1]) == {}


def test_a_damaged_published_file_is_reported_before_any_run(place, folder, capsys):
    run_queue(capsys, "one", "seeds=1", *RESULTS)
    path = folder / RECORDS
    path.write_text(path.read_text().replace('"params"', '"was"', 1))
    before = contents(place.folder / "results")
    said = r"records.jsonl, line 1 is a damaged .*; restore it, or remove its folder"
    with pytest.raises(ValueError, match=said):
        command.main(["run", "one", "seeds=2", *RESULTS])
    assert len(place.lines("calls")) == 2 and contents(place.folder / "results") == before


def test_a_publishing_problem_is_reported_once_and_the_runs_continue(
    place, folder, capsys, monkeypatch
):
    """Seeds are complete after runs 2, 4 and 6. The manifest gets a merge conflict after run 1."""
    ended, listed = StudyQueue.ended, folder.parents[1] / manifest.MANIFEST

    def merging(self, done):
        if len(self.done) == 1:
            listed.parent.mkdir()
            listed.write_text(CONFLICT)
        ended(self, done)

    monkeypatch.setattr(StudyQueue, "ended", merging)
    argv = ["one", "seeds=1-3", *RESULTS, "--processes", "1"]
    code, err = command.main(["run", *argv]), capsys.readouterr().err
    assert code == 1 and len(place.lines("calls")) == 6
    problem = f"normlab: one scale=smoke is not published: results/{manifest.MANIFEST}, line 1"
    assert err.count(f"{problem} is damaged") == 1
    assert not list(folder.rglob("[!.]*.json*")), "a partial file is left"
    listed.unlink()
    assert command.main(["run", *argv]) == 0
    assert seeds(folder) == [1, 2, 3] and manifest.problems(folder.parents[1]) == {}


def test_seeds_that_are_not_complete_are_named_and_publishing_nothing_is_a_failure(
    place, folder, capsys
):
    argv = ["publish", "one", "seeds=1-3", "--results", "results"]
    assert command.main(argv) == 1
    said = "one scale=smoke: not published, because not all runs have ended: seed"
    assert f"{said} 1 2 3" in " ".join(capsys.readouterr().err.split()) and not folder.exists()
    run_queue(capsys, "one", "seeds=2")
    assert command.main(argv) == 0
    assert f"{said} 1 3" in " ".join(capsys.readouterr().err.split()) and seeds(folder) == [2]
