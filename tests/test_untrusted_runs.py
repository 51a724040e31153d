"""An untrusted run is only data: nothing named in its record is imported, called or written."""

import copy
import json
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from normlab.cli import main as cli
from normlab.config.compose import compose
from normlab.config.run_config import from_dict, to_dict
from normlab.data.cache import cached_folder
from normlab.data.folder_corpus import FolderCorpus
from normlab.records.record import Outcome
from normlab.records.store import RunStore
from normlab.training.build import check_nodes
from normlab.training.loaded_run import load_run
from tests.records.examples import record as example

PLACES = (
    *("norm", "decoder_norm", "embedding_norm", "placement", "model", "optim", "schedule"),
    *("task", "task.corpus", "task.test_search"),
)


@pytest.fixture(scope="module")
def config() -> dict:
    return to_dict(compose(["task=toy", "norm=bn", "norm@decoder_norm=ln"]))


def changed(config: dict, place: str, value: object) -> dict:
    """Return a config with a different node at a dotted key."""
    node = result = copy.deepcopy(config)
    *parents, last = place.split(".")
    for name in parents:
        node = node[name]
    node[last] = value
    return result


@pytest.mark.parametrize("place", PLACES)
def test_a_config_node_with_a_plain_value_or_unknown_option_is_refused(place, config):
    check_nodes(config)
    key = rf"^(norm@)?{place.replace('.', '[.]')}"
    for value in ({"a": 1}, {"": {}}, {"option": None}, {"option": {}}, 5, "x", [1]):
        with pytest.raises(ValueError, match=key):
            check_nodes(changed(config, place, value))
    if place != "task.test_search":  # there is only one kind, so it has no `option`
        with pytest.raises(ValueError, match=rf"{key}\.option='os\.system' does not exist here"):
            check_nodes(changed(config, place, {"option": "os.system"}))


@pytest.mark.parametrize("kind", ["probe", "sink"])
def test_unknown_probes_and_sinks_of_a_run_are_refused(kind, config):
    name = {"probe": "tid", "sink": "jsonl"}[kind]
    for place, node in ((name, {"nonsense": 1}), ("nonsense", {})):
        with pytest.raises(ValueError, match=rf"^observe\.{kind}\.{place}.* does not exist"):
            check_nodes(changed(config, f"observe.{kind}", {place: node}))


def test_the_whole_config_is_checked_before_anything_is_built(config, monkeypatch):
    built = []
    monkeypatch.setattr("normlab.config.instantiation._build", lambda *_, **__: built.append(1))
    with pytest.raises(ValueError, match=r"task\.test_search\.url does not exist"):
        check_nodes(changed(config, "task.test_search", {"url": "x"}))
    assert not built


@pytest.mark.parametrize("place", ["norm", "optim", "task.corpus", "observe.probe.tid"])
def test_a_class_that_a_record_refers_to_is_never_called(place, config, tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr("normlab.data.cache.download", lambda *a, **b: called.append(a))
    node = {"_target_": "normlab.data.cache.download", "url": "http://127.0.0.1:9", "name": "x"}
    written(changed(config, place, node), tmp_path)
    with pytest.raises(
        ValueError, match=rf"{place}\._target_=.*: run configs may not name classes"
    ):
        load_run(tmp_path)
    assert not called


def test_a_record_cannot_read_the_environment(config, monkeypatch):
    monkeypatch.setenv("SECRET", "of mine")
    with pytest.raises(ValueError, match=r"^data_dir=.*: records hold only plain values"):
        from_dict(changed(config, "data_dir", "${oc.env:SECRET}"))


def test_a_file_of_settings_cannot_read_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "of mine")
    file = tmp_path / "my.yaml"
    file.write_text('tags: ["${oc.env:SECRET}"]')
    with pytest.raises(ValueError, match=r"my.yaml: tags: .*: write the value itself") as error:
        compose([str(file)])
    assert "of mine" not in str(error.value)


def test_names_and_language_codes_cannot_point_outside_their_folder(tmp_path):
    for name in ("../../outside", "/tmp/outside", "..", ".hidden", "a\\b", "a\nb", "", "x" * 300):
        with pytest.raises(ValueError, match=r"task\.corpus\.name"):
            cached_folder(f"{name}-key", lambda folder: None)
    assert not list(tmp_path.iterdir())
    for code in ("../../etc/passwd", "de/..", "", "d", "de\n", "."):
        settings = {"data_dir": "somewhere", "target_language": "en", "form": "raw"}
        with pytest.raises(ValueError, match=r"task\.corpus\.source_language"):
            FolderCorpus(source_language=code, **settings)


def test_a_report_page_escapes_text_from_untrusted_runs(tmp_path, capsys):
    store, evil = RunStore(tmp_path / "runs"), "<script>alert(1)</script>"
    hostile = example(choices={"placement": evil}, data={"label": evil, "source": evil})
    ended = Outcome("failed", 1, reason=evil, layer=evil)
    hostile = replace(hostile, run_id="x", outcome=ended, stability={evil: 1.0})
    store.write(hostile, store.root / "x" / "seed1")
    (tmp_path / "secret").mkdir()
    written({**example().config, "secret": "of mine"}, tmp_path / "secret")
    (store.root / "folder").symlink_to(tmp_path / "secret")
    for name in ("lines", "pipe"):
        folder = store.root / name / "seed1"
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(json.dumps({**example().config, "batch_size": 8}))
    now = {"phase": evil, "done": 1e400, "total": [evil], "loss": "nan", "left": {}}
    now |= {"spent": evil, "trained": evil}
    (store.root / "lines/seed1/progress.json").write_text(json.dumps(now))
    os.mkfifo(store.root / "pipe/seed1/progress.json")
    assert cli(["report", str(store.root), "--out", str(tmp_path / "page")]) == 1
    assert "folder is a link, and links are not followed" in capsys.readouterr().err
    page = (tmp_path / "page" / "report.html").read_text()
    assert evil not in page and "&lt;script&gt;alert" in page
    assert "secret" not in page, "a link to a folder is not followed"


def written(config: dict, folder: Path) -> None:
    """Write the record of a run that never took place."""
    (folder / "record.json").write_text(replace(example(), config=config).to_json())
