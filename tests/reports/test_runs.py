"""Runs as reports read them: states, overlapping places, and thinned rows."""

import itertools

import yaml

from normlab.records.store import RunStore
from normlab.reports.runs import NOT_ENDED, read_runs, thinned
from tests.records.examples import config, record


def training(count, step=10):
    return [{"step": step * n, "train/loss": 1 / n} for n in range(1, count + 1)]


def steps(rows):
    return [row["step"] for row in rows]


def test_thinning_keeps_about_a_hundred_rows_and_every_validation():
    validations = [{"step": step, "valid/loss": 2.0} for step in range(7, 10_000, 10)]
    kept = thinned([*training(1000), *validations])
    assert [row for row in kept if "valid/loss" in row] == validations
    trained = steps(row for row in kept if "train/loss" in row)
    assert 50 <= len(trained) <= 102 and (trained[0], trained[-1]) == (10, 10_000)
    assert {b - a for a, b in itertools.pairwise(trained[1:-1])} == {160}
    for ended in (101, 399, 777):  # a seed that ended early keeps the steps of one that did not
        shared = {step for step in trained if 10 < step < 10 * ended}
        assert shared <= set(steps(thinned(training(ended))))


def test_a_run_in_overlapping_folders_is_read_once_and_a_run_in_training_has_no_record(
    tmp_path,
):
    store = RunStore(tmp_path / "runs")
    ended = store.run_dir(config(norm="ln"))
    store.write(record(norm="ln"), ended)
    training = store.run_dir(config(norm="bn"))
    training.mkdir(parents=True)
    (training / "config.yaml").write_text(yaml.safe_dump(config(norm="bn")))
    found, problems = read_runs([tmp_path / "runs", ended])
    assert [(run.norm, run.outcome) for run in found] == [("ln", "finished"), ("bn", NOT_ENDED)]
    assert problems == []
    assert [run.norm for run in read_runs([tmp_path / "runs"], ended=True)[0]] == ["ln"]
    (training / "config.yaml").write_text("seed: many")
    found, (problem,) = read_runs([tmp_path / "runs"])
    assert len(found) == 1 and "config.yaml: not a run's config" in problem
