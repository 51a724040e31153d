import json

import pytest
import yaml

from normlab.records.rows import spike_steps
from normlab.reports.figures.runs import Run, experiments, find_runs, last_step, read_run
from tests.records.examples import record
from tests.reports.curves import loss_rows, run


def names(*runs):
    return [experiment.name for experiment in experiments(runs)]


def test_experiments_are_named_by_what_sets_them_apart():
    assert names(run(norm="ln"), run(norm="bn")) == ["ln", "bn"]
    placed = [run(placement=p, choices={"placement": p}) for p in ("pre", "post")]
    assert names(*placed, run(norm="bn")) == ["ln pre", "ln post", "bn"]
    sizes = [run(batch_size=size) for size in (8, 32)]
    assert names(*sizes) == ["ln batch_size=8", "ln batch_size=32"]


def test_seeds_are_joined_and_those_that_do_not_compare_refused():
    (joined,) = experiments([run(seed=2), run(seed=1)])
    assert [each.seed for each in joined.runs] == [1, 2]
    with pytest.raises(ValueError, match="not comparable: params"):
        experiments([run(seed=1), run(seed=2, params=5)])


def folder(tmp_path, name, *, rows=(), kept=None, config=None):
    path = tmp_path / name
    path.mkdir(parents=True)
    if config is not None:
        (path / "config.yaml").write_text(yaml.safe_dump(config))
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if kept is not None:
        (path / "record.json").write_text(kept.to_json())
    return path


def test_a_run_is_read_with_its_record_and_without(tmp_path):
    rows = loss_rows({10: 2.0})
    ended = read_run(folder(tmp_path, "toy-ln-pre-abc/seed1", rows=rows, kept=record()))
    assert ended == Run.of(record(), rows)
    config = record(seed=3, norm="bn").config
    going = read_run(folder(tmp_path, "going", rows=rows, config=config))
    assert (going.task, going.norm, going.seed) == ("toy", "bn", 3)
    assert going.experiment == Run.of(record(norm="bn")).experiment
    assert (going.rows, going.record) == (rows, None)


@pytest.mark.parametrize("text", [None, "", "[1, 2]", "a: [", "norm: ln"])
def test_a_run_without_record_and_config_is_named(tmp_path, text):
    path = folder(tmp_path, "going", rows=loss_rows({10: 2.0}))
    if text is not None:
        (path / "config.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"going/config\.yaml: no config of a run"):
        read_run(path)


def test_a_seed_that_has_not_ended_is_one_of_its_experiment(tmp_path):
    ended = Run.of(record(seed=1), loss_rows({10: 2.0}))
    config = record(seed=2).config
    going = read_run(folder(tmp_path, "going", rows=loss_rows({10: 3.0}), config=config))
    (joined,) = experiments([going, ended])
    assert (joined.name, [each.seed for each in joined.runs]) == ("ln", [1, 2])
    assert last_step([joined]) == 100, "the end of the record"


def test_runs_are_found_at_and_below_a_folder(tmp_path):
    one = folder(tmp_path, "runs/toy-ln-pre-abc/seed1")
    two = folder(tmp_path, "runs/toy-ln-pre-abc/seed2")
    assert find_runs(tmp_path) == find_runs(one.parent) == [one, two]
    assert find_runs(two) == [two]
    (tmp_path / "empty").mkdir()
    for place in ("empty", "nowhere"):
        with pytest.raises(ValueError, match=place):
            find_runs(tmp_path / place)


def test_a_spike_is_where_the_count_grows():
    counts = [0.0, 1.0, 1.0, 3.0]
    rows = [{"step": n, "stability/spikes/count": c} for n, c in enumerate(counts, start=1)]
    assert spike_steps([*rows, {"step": 5}]) == [2, 4]
    assert spike_steps(rows[1:]) == [2, 4], "also in the first row"
    assert spike_steps([{"step": 1}]) == []
