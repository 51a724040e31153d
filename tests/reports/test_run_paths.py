"""The runs at the paths that a user names."""

from pathlib import Path

import pytest

from normlab.errors import UserError
from normlab.records.store import CONFIG_FILE, RECORD_FILE, RUNS
from normlab.reports.run_paths import ended_runs, nearest, none_below, one_run, runs_of
from tests.records.examples import record


@pytest.fixture
def folder(tmp_path):
    """Write two seeds of an experiment, and one of another."""
    for norm, seed in (("ln", 2), ("ln", 1), ("bn", 1)):
        run = record(norm=norm, seed=seed)
        place = tmp_path / run.run_id.rpartition("-")[0] / f"seed{seed}"
        place.mkdir(parents=True)
        (place / RECORD_FILE).write_text(run.to_json())
    return tmp_path


def experiment(folder, norm):
    return next(path for path in folder.iterdir() if f"-{norm}-" in path.name)


def test_a_path_names_one_run_or_all_seeds_of_one_experiment(folder):
    ln = experiment(folder, "ln")
    assert [path.name for path in runs_of(ln)] == ["seed1", "seed2"]
    assert one_run(ln / "seed2") == ln / "seed2"
    assert len(ended_runs([folder])) == 3
    with pytest.raises(UserError, match="has 2 runs; choose one, such as"):
        one_run(ln)
    with pytest.raises(UserError, match="has several experiments; choose one, such as"):
        runs_of(folder)


def test_an_unfinished_run_and_a_folder_without_runs_are_errors(folder):
    ln = experiment(folder, "ln")
    (ln / "seed1" / RECORD_FILE).unlink()
    (ln / "seed1" / CONFIG_FILE).write_text("seed: 1")
    with pytest.raises(UserError, match="seed1"):
        ended_runs([ln / "seed1"])
    (folder / "empty").mkdir()
    with pytest.raises(UserError, match=r"no run in .*empty; `normlab train` makes one"):
        ended_runs([folder / "empty"])


def test_the_error_for_a_missing_path_suggests_a_similar_one(folder):
    ln = experiment(folder, "ln")
    assert nearest(ln / "seed3") in (ln / "seed1", ln / "seed2")
    assert nearest(folder / "nothing" / "like" / "it") is None
    assert f"Did you mean {ln}" in none_below([ln.with_name(f"{ln.name}x")])


def test_the_error_for_a_folder_that_does_not_exist_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = "a, b do not exist; `normlab list runs` shows the runs in runs/"
    assert none_below([Path("a"), Path("b")]) == said
    assert none_below([RUNS]) == "no run in runs; `normlab train` makes one"
