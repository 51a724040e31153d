"""A stranger's run is data: nothing that its record names is imported, called or written to."""

import copy
import inspect
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from normlab.build import check_targets
from normlab.cli import main as cli
from normlab.config import compose, from_dict, to_dict
from normlab.data.cache import cached_folder
from normlab.instantiate import check
from normlab.loaded import load_run
from normlab.norms.base import Norm
from normlab.records.record import BudgetUsed, Outcome, RunRecord
from normlab.records.store import RunStore
from tests.records.examples import record as example

HOSTILE = (
    "os.system",
    "subprocess.run",
    "builtins.eval",
    "torch.load",
    "torch.optim.lr_scheduler.LambdaLR",
    "torch.optim.optimizer.warnings",
    "torch.optim.sgd.torch.load",
    "normlab.data.archive.download",
    "normlab.data.archive.shutil",
    "normlab.data.archive.urllib.request.urlopen",
    "normlab.instantiate.import_module",
    "normlab.instantiate.instantiate",
    "normlab.tasks.translation.SearchSettings",
    "normlab.cli.main",
    "normlab.commands.train.main",
    "normlab.__main__.main",
    "normlab.run.train",
    "normlab.train.runtime.subprocess",
    "normlab.train.runtime.Path",
    "normlab.distributed",
    "normlab.norms.batch.nn",
    "normlab.norms.base.Norm",
    "normlab.norms.batch.Norm",
    "normlab...os",
    "normlab.norms.batch.BatchNorm.__init__",
    "normlab.train.sinks.wandb.Wandb",
)
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
    "task.label_smoothing",
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
    check_targets(config)


@pytest.mark.parametrize("place", PLACES)
def test_no_place_takes_a_function_a_module_or_a_class_of_another_kind(place, config):
    for target in HOSTILE:
        node = {"_target_": target, "url": "http://127.0.0.1:9/x", "name": "../../x"}
        with pytest.raises(ValueError, match=rf"^{place.replace('.', '[.]')}"):
            check_targets(changed(config, place, node))


@pytest.mark.parametrize("place", [*PLACES[:-1], "embedding_norm"])
def test_the_place_of_an_object_takes_no_plain_value(place, config):
    for value in ({"a": 1}, {"": {}}, {"_target_": None}, {"_target_": {}}, 5, "x", [1]):
        with pytest.raises(ValueError, match=rf"^(norm@)?{place.replace('.', '[.]')}"):
            check_targets(changed(config, place, value))


def test_of_everything_in_the_package_a_norms_place_takes_norms_alone():
    modules = {name: m for name, m in sys.modules.items() if name.startswith("normlab.")}
    taken = 0
    for module_name, module in sorted(modules.items()):
        for name, value in vars(module).items():
            try:
                check({"_target_": f"{module_name}.{name}"}, "norm", Norm)
            except ValueError as error:
                if "is missing" not in str(error):  # a norm whose values are not given
                    continue
            assert inspect.isclass(value) and issubclass(value, Norm), f"{module_name}.{name}"
            assert not inspect.isabstract(value) and value.__module__ == module_name
            taken += 1
    assert taken > 5


def test_the_whole_tree_is_checked_before_anything_is_built(config, monkeypatch):
    built = []
    monkeypatch.setattr("normlab.instantiate._Plan.build", lambda plan, live: built.append(plan))
    search = {"_target_": "normlab.data.archive.download", "url": "x", "name": "y"}
    with pytest.raises(ValueError, match=r"task\.test_search\._target_"):
        check_targets(changed(config, "task.test_search", search))
    assert not built


@pytest.mark.parametrize("place", ["norm", "optim", "task.corpus"])
def test_loading_a_strangers_run_calls_nothing_that_it_names(place, config, tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr("normlab.data.archive.download", lambda *a, **b: called.append(a))
    node = {"_target_": "normlab.data.archive.download", "url": "http://127.0.0.1:9", "name": "x"}
    folder = written(changed(config, place, node), tmp_path)
    with pytest.raises(ValueError, match=rf"{place}\._target_"):
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
    from normlab.data.local import FolderCorpus

    with pytest.raises(ValueError, match=r"task\.corpus\.source_language"):
        FolderCorpus(
            "somewhere",
            source_language=code,
            target_language="en",
            form="raw",
            infix="",
            empty_lines="error",
        )


def test_a_page_of_runs_shows_what_they_say_as_text(tmp_path):
    (tmp_path / "secret").mkdir()
    secret = written({**example().config, "secret": "of mine"}, tmp_path / "secret")
    store = RunStore(tmp_path / "runs")
    evil = "<script>alert(1)</script>"
    hostile = example(choices={"placement": evil}, data={"label": evil, "source": evil})
    ended = Outcome("failed", 1, reason=evil, layer=evil)
    hostile = replace(hostile, run_id="x", outcome=ended, stability={evil: 1.0})
    store.write(hostile, tmp_path / "runs" / "x" / "seed1")
    for name in ("linked", "lines"):
        (tmp_path / "runs" / name / "seed1").mkdir(parents=True)
    (tmp_path / "runs/linked/seed1/record.json").symlink_to(secret / "record.json")
    (tmp_path / "runs/folder").symlink_to(secret)
    lines = tmp_path / "runs/lines/seed1"
    (lines / "config.yaml").write_text(json.dumps({**example().config, "batch_size": 8}))
    (lines / "progress.json").write_text(
        json.dumps({"phase": evil, "done": 1e400, "total": [evil], "loss": "nan", "left": {}})
    )
    (tmp_path / "runs/pipe/seed1").mkdir(parents=True)
    (tmp_path / "runs/pipe/seed1/config.yaml").write_text((lines / "config.yaml").read_text())
    os.mkfifo(tmp_path / "runs/pipe/seed1/progress.json")
    assert cli(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "page")]) == 1
    page = (tmp_path / "page" / "report.html").read_text()
    assert evil not in page and "&lt;script&gt;alert" in page
    assert "secret" not in page and "leads out of the folder by a link" in page


def written(config: dict, folder: Path) -> Path:
    """Write the record of a run that never was."""
    record = RunRecord(
        run_id="stranger",
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
