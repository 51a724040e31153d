import json
import math
from pathlib import Path

import pytest

from normlab.records.store import read_rows
from normlab.training.sinks import Jsonl, SinkGroup
from tests.training.sink_runs import info, scores


def write(folder: Path, steps, *, resumed_step: int = 0) -> Path:
    sink = Jsonl()
    sink.open(info(folder, resumed_step=resumed_step))
    for step in steps:
        sink.log({"step": step, "train/loss": 1 / step})
    sink.close(None)
    return folder / "metrics.jsonl"


def test_a_row_is_on_disk_as_soon_as_it_is_logged(tmp_path):
    sink = Jsonl()
    sink.open(info(tmp_path))
    sink.log({"step": 5, "tokens": 7, "train/loss": 0.1}, scores(12.5, 2.0))
    text = (tmp_path / "metrics.jsonl").read_text()
    sink.close(None)
    row = {"step": 5, "tokens": 7, "train/loss": 0.1, "valid/bleu": 12.5, "valid/loss": 2.0}
    assert json.loads(text) == row
    assert text.startswith('{"step": 5, ') and text.endswith("}\n")


def test_a_resumed_run_writes_the_same_bytes_as_an_uninterrupted_one(tmp_path):
    whole = write(tmp_path / "whole", range(1, 9)).read_bytes()
    path = write(tmp_path / "killed", range(1, 7))
    with path.open("a") as file:
        file.write('{"step": 7, "train/l')  # the kill
    assert write(tmp_path / "killed", range(5, 9), resumed_step=4).read_bytes() == whole


def test_a_resumed_run_reports_how_many_rows_are_lost_even_without_a_console(tmp_path, caplog):
    write(tmp_path, [1, 2, 4])  # a power failure took row 3 of 4
    lost = Jsonl().open(info(tmp_path, resumed_step=4, resumed_rows=4))
    assert lost is not None and "lost 1 of 4 rows before step 4" in lost.text
    assert Jsonl().open(info(tmp_path, resumed_step=4, resumed_rows=3)) is None
    SinkGroup({"jsonl": Jsonl()}).open(info(tmp_path, resumed_step=4, resumed_rows=4))
    assert "lost 1 of 4 rows before step 4" in caplog.text


def test_rows_and_their_file_reach_the_disk_before_a_checkpoint(tmp_path, monkeypatch):
    forced = []
    monkeypatch.setattr("normlab.training.sinks.os.fsync", forced.append)
    sink = Jsonl()
    sink.open(info(tmp_path))
    assert len(forced) == 1  # the folder: a power failure could lose the file's name
    sink.log({"step": 1})
    sink.sync()
    assert len(forced) == 2
    sink.close(None)


def test_numbers_that_are_not_finite_survive_as_strict_json(tmp_path):
    sink = Jsonl()
    sink.open(info(tmp_path))
    sink.log({"step": 1, "a": math.nan, "b": -math.inf, "c": 2})
    sink.close(None)
    path = tmp_path / "metrics.jsonl"
    json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    (row,) = read_rows(path)
    assert math.isnan(row["a"]) and row["b"] == -math.inf
    assert (row["step"], row["c"]) == (1, 2) and isinstance(row["step"], int)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is a device of Linux")
def test_a_full_disk_raises_an_error():
    sink = Jsonl()
    sink._file = Path("/dev/full").open("w")  # noqa: SIM115 - the sink closes it
    with pytest.raises(OSError, match="No space left"):
        sink.log({"step": 1})
    with pytest.raises(OSError, match="No space left"):
        sink.close(None)
