"""A stranger's run is data: nothing that its record names is imported, called or written to."""

import copy
import json
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from normlab.cli import main as cli
from normlab.config.compose import compose, from_dict, to_dict
from normlab.data.cache import cached_folder
from normlab.records.record import BudgetUsed, Outcome, RunRecord
from normlab.records.store import RunStore
from normlab.train.build import check_nodes
from normlab.train.loaded import load_run
from normlab.train.run import NUMERICS
from tests.records.examples import record as example

PLACES = (
    "norm",
    "decoder_norm",
    "ffn_inner_norm",
    "placement",
    "model",
    "optim",
    "schedule",
    "task",
    "task.corpus",
    "task.test_search",
)


@pytest.fixture(scope="module")
def config() -> dict:
    return to_dict(compose(["task=toy", "norm=bn", "norm@decoder_norm=ln"]))


def changed(config: dict, place: str, value: object) -> dict:
    """Return a config whose node at a dotted place is another."""
    result = copy.deepcopy(config)
    *parents, last = place.split(".")
    node = result
    for name in parents:
        node = node[name]
    node[last] = value
    return result


def test_the_config_that_is_doctored_below_is_accepted(config):
    check_nodes(config)


@pytest.mark.parametrize("place", [*PLACES, "embedding_norm"])
def test_the_place_of_an_object_takes_no_plain_value_and_no_unknown_option(place, config):
    key = rf"^(norm@)?{place.replace('.', '[.]')}"
    for value in ({"a": 1}, {"": {}}, {"option": None}, {"option": {}}, 5, "x", [1]):
        with pytest.raises(ValueError, match=key):
            check_nodes(changed(config, place, value))
    if place != "task.test_search":  # of one kind only, it names no option
        with pytest.raises(ValueError, match=rf"{key}\.option='os\.system' does not exist here"):
            check_nodes(changed(config, place, {"option": "os.system"}))


def test_the_whole_tree_is_checked_before_anything_is_built(config, monkeypatch):
    built = []
    monkeypatch.setattr(
        "normlab.config.registry._build", lambda *given, **live: built.append(given)
    )
    with pytest.raises(ValueError, match=r"task\.test_search\.url does not exist"):
        check_nodes(changed(config, "task.test_search", {"url": "x"}))
    assert not built


@pytest.mark.parametrize("place", ["norm", "optim", "task.corpus", "observe.probe.tid"])
def test_a_record_that_names_a_class_is_refused_and_nothing_is_called(
    place, config, tmp_path, monkeypatch
):
    called = []
    monkeypatch.setattr("normlab.data.cache.download", lambda *a, **b: called.append(a))
    node = {"_target_": "normlab.data.cache.download", "url": "http://127.0.0.1:9", "name": "x"}
    folder = written(changed(config, place, node), tmp_path)
    with pytest.raises(ValueError, match=rf"{place}\._target_=.*: a run names no classes"):
        load_run(folder)
    assert not called


def test_a_record_cannot_read_the_environment(config, monkeypatch):
    monkeypatch.setenv("SECRET", "of mine")
    with pytest.raises(ValueError, match=r"at data_dir: a record holds plain values"):
        from_dict(changed(config, "data_dir", "${oc.env:SECRET}"))


@pytest.mark.parametrize(
    "name", ["../../outside", "/tmp/outside", "..", ".hidden", "a/b", "a\\b", "a\nb", "", "x" * 300]
)
def test_a_corpus_name_never_leaves_the_cache(name, tmp_path):
    root = tmp_path / "cache" / "inner"
    with pytest.raises(ValueError, match=r"task\.corpus\.name"):
        cached_folder(f"{name}-key" if "-" not in name else name, lambda folder: None, root=root)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("code", ["../../etc/passwd", "de/..", "", "d", "de\n", "."])
def test_a_language_code_never_leaves_the_folder(code, config):
    from normlab.data.corpus import FolderCorpus

    with pytest.raises(ValueError, match=r"task\.corpus\.source_language"):
        FolderCorpus(data_dir="somewhere", source_language=code, target_language="en", form="raw")


def test_a_page_of_runs_shows_what_they_say_as_text(tmp_path):
    (tmp_path / "secret").mkdir()
    secret = written({**example().config, "secret": "of mine"}, tmp_path / "secret")
    store = RunStore(tmp_path / "runs")
    evil = "<script>alert(1)</script>"
    hostile = example(choices={"placement": evil}, data={"label": evil, "source": evil})
    ended = Outcome("failed", 1, reason=evil, layer=evil)
    hostile = replace(hostile, run_id="x", outcome=ended, stability={evil: 1.0})
    store.write(hostile, tmp_path / "runs" / "x" / "seed1")
    (tmp_path / "runs/lines/seed1").mkdir(parents=True)
    (tmp_path / "runs/folder").symlink_to(secret)
    lines = tmp_path / "runs/lines/seed1"
    (lines / "config.yaml").write_text(json.dumps({**example().config, "batch_size": 8}))
    (lines / "progress.json").write_text(
        json.dumps({"phase": evil, "done": 1e400, "total": [evil], "loss": "nan", "left": {}})
    )
    (tmp_path / "runs/pipe/seed1").mkdir(parents=True)
    (tmp_path / "runs/pipe/seed1/config.yaml").write_text((lines / "config.yaml").read_text())
    os.mkfifo(tmp_path / "runs/pipe/seed1/progress.json")
    assert cli(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "page")]) == 0
    page = (tmp_path / "page" / "report.html").read_text()
    assert evil not in page and "&lt;script&gt;alert" in page
    assert "secret" not in page, "a folder is not followed by a link"


def written(config: dict, folder: Path) -> Path:
    """Write the record of a run that never was."""
    record = RunRecord(
        run_id="stranger",
        fingerprint="0123456789",
        numerics=NUMERICS,
        seed=1,
        config=config,
        outcome=Outcome("finished", 1),
        scores={},
        stability={},
        budget=BudgetUsed(1, 1, 1.0, 1.0, 1),
        environment={},
        data={},
        params=1,
    )
    (folder / "record.json").write_text(record.to_json())
    assert json.loads(record.to_json())["config"] == config
    return folder
