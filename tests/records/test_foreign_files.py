"""Untrusted files: one that is not regular, or nests endlessly, raises a one-line error."""

import json
import os
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from normlab.commands.list import main as ls
from normlab.commands.report import main as report
from normlab.data.text_files import read_lines
from normlab.records.files import read_file
from normlab.records.record import RunRecord, read_number
from normlab.records.store import RunStore, read_rows
from normlab.reports.runs import read_config
from normlab.training.checkpoint import load_checkpoint
from tests.records.examples import record

READERS: dict[str, Callable[[Path], object]] = {
    "metrics": read_rows,
    "checkpoint": load_checkpoint,
    "text": read_lines,
    "file": read_file,
}


def made(kind: str, path: Path) -> Path:
    if kind == "a folder":
        path.mkdir()
    elif kind == "a pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    return path


@pytest.mark.parametrize(
    ("reader", "kind"),
    [*product(READERS, ["a pipe"]), ("file", "a folder"), ("file", "a device")],
)
def test_a_pipe_folder_or_device_is_an_error_and_does_not_block(reader, kind, tmp_path):
    path = made(kind, tmp_path / "x")
    with pytest.raises(ValueError, match=f"{path}.* not a regular file") as caught:
        READERS[reader](path)
    assert "\n" not in str(caught.value)


def test_endlessly_nested_json_is_refused():
    text = b"[" * 100_000
    with pytest.raises(ValueError, match=r"^here is a damaged record \(.*\); remove"):
        RunRecord.from_json(text, origin="here")


def test_a_number_too_large_for_a_float_is_none():
    assert read_number(10**400) is None and read_number(10**30) == 1e30


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("config", "choices", {"norm": ["bn"]}),
        ("config", "batch_size", [1]),
        ("config", "task", [1]),
        ("config", "task", {"label_smoothing": "much"}),
        ("config", "observe", {"tags": [1]}),
        ("config", "observe", None),
        ("config", "norm", ["bn"]),
        ("config", "sites", {"*": "bn"}),
        ("config", "optim", 1),
        ("environment", "versions", {"a": 1}),
        ("environment", "world_size", "many"),
        ("data", "checksums", "abc"),
        ("data", "languages", [1]),
    ],
)
def test_one_malformed_record_does_not_stop_a_list_of_runs(part, key, value, tmp_path, capsys):
    store = RunStore(tmp_path)
    store.write(record(seed=1), tmp_path / "good" / "seed1")
    bad = store.write(record(seed=2), tmp_path / "bad" / "seed2")
    content = json.loads(bad.read_bytes())
    content[part][key] = value
    bad.write_text(json.dumps(content))
    assert ls(["runs", "--runs-dir", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert "finished" in printed.out
    assert f"{bad} is a damaged record ({part}.{key}" in printed.err


@pytest.mark.parametrize("name", ["../../x", ".hidden", "a\nb", "", "x" * 300, "a\u202eb"])
def test_a_record_whose_run_id_cannot_be_a_folder_name_is_damaged(name):
    content = json.loads(record().to_json()) | {"run_id": name}
    with pytest.raises(ValueError, match=r"damaged record \(run_id"):
        RunRecord.from_json(json.dumps(content), origin="here")


def test_a_config_with_exponentially_nested_aliases_is_refused_quickly(tmp_path, capsys):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    folder = tmp_path / "bad" / "seed1"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("\n".join(lines))
    with pytest.raises(ValueError, match=r"config\.yaml: not a run's config .*alias"):
        read_config(folder / "config.yaml")
    store = RunStore(tmp_path)
    store.write(record(seed=1), tmp_path / "good" / "seed1")
    assert report([str(tmp_path), "--out", str(tmp_path / "out")]) == 1
    assert "line 2 has an alias" in capsys.readouterr().err
