import json
import math
from pathlib import Path

import pytest

from normlab.records.record import Outcome
from normlab.train.sinks.base import SinkGroup
from normlab.train.sinks.jsonl import Jsonl
from normlab.train.sinks.wandb_charts import charts
from normlab.train.sinks.wandb_files import messages
from tests.sinks.offline_file import read
from tests.sinks.runs import info, record
from tests.sinks.wandb_client import files, sink

pytestmark = pytest.mark.usefixtures("nobody_is_logged_in")

FIGURES = {
    "stability/gradients/norm/decoder.0": 4.0,
    "stability/gradients/norm/encoder.1": 2.0,
    "stability/gradients/norm/encoder.0": 1.0,
    "stability/tid/mean": 0.5,
    "stability/tid/mean/encoder.0.self": 0.25,
    "stability/residual/rms/encoder.0.self": math.nan,
}
ROWS = [
    {"step": 10, "train/loss": 5.0, "stability/spikes/count": 0.0},
    {"step": 20, "train/loss": 7.0, "stability/spikes/count": 1.0, "stability/tid/mean": 0.5},
    {"step": 20, "valid/loss": 6.0},
    {"step": 30, "train/loss": math.inf, "stability/spikes/count": 1.0},
]
LOSS = [
    [10, "training", 5.0],
    [20, "training", 7.0],
    [20, "validation", 6.0],
    [20, "spikes", 5.0],
    [20, "spikes", 7.0],
    [20, "spikes", 5.0],
]
GRADIENTS = [["00 encoder.0", 1.0], ["01 encoder.1", 2.0], ["02 decoder.0", 4.0]]


def offline(folder: Path) -> Path:
    (path,) = files(folder)
    return path


def table(run_file: Path, name: str) -> dict:
    """Read the table of a chart, as the run's summary points to it."""
    entry = read(run_file).summary[f"charts/{name}_table"]
    assert entry["_type"] == "table-file"
    return json.loads((run_file.parent / "files" / entry["path"]).read_text())


def panels(run_file: Path) -> dict[str, dict]:
    """Read which charts the run shows, and by which preset."""
    from wandb.proto import wandb_internal_pb2 as pb

    found = {}
    for message in messages(run_file):
        for item in pb.Record.FromString(message).config.update:
            if list(item.nested_key)[:2] == ["_wandb", "visualize"]:
                found[item.nested_key[2]] = json.loads(item.value_json)["panel_config"]
    return found


def test_charts_are_those_of_the_figures_that_are_there_in_the_order_of_depth():
    found = charts(record(stability=FIGURES), ROWS)
    assert list(found) == ["gradient_by_layer", "tid_mean_by_layer", "loss"]
    assert found["gradient_by_layer"].rows == GRADIENTS
    assert found["tid_mean_by_layer"].rows == [["00 encoder.0.self", 0.25]]
    assert found["loss"].rows == LOSS
    assert charts(record(stability={}), []) == {}


def test_a_long_run_keeps_its_chart_small_and_all_its_spikes():
    rows = [
        {"step": step, "train/loss": 1.0, "stability/spikes/count": float(step >= 7)}
        for step in range(1, 10_001)
    ]
    found = charts(record(stability={}), rows)["loss"].rows
    assert 1000 < len(found) <= 2100
    assert [step for step, line, _ in found if line == "spikes"] == [7, 7, 7]


def test_the_offline_run_holds_the_tables_the_charts_and_the_rows(tmp_path):
    wandb = sink("offline", seconds=60.0)
    wandb.open(info(tmp_path))
    for row in ROWS:
        wandb.log(row)
    wandb.close(record(stability=FIGURES, outcome=Outcome("diverged", 33, "loss is nan")))
    path = offline(tmp_path)
    run = read(path)  # waits for the end of the run to be written
    names = ["gradient_by_layer", "tid_mean_by_layer", "loss"]
    shown = panels(path)
    assert list(shown) == [f"charts/{name}" for name in names]
    assert shown["charts/gradient_by_layer"]["panelDefId"] == "wandb/bar/v0"
    assert shown["charts/gradient_by_layer"]["fieldSettings"] == {
        "label": "place",
        "value": "value",
    }
    assert shown["charts/loss"]["panelDefId"] == "wandb/lineseries/v0"
    assert table(path, "gradient_by_layer") == {"columns": ["place", "value"], "data": GRADIENTS}
    assert table(path, "loss") == {"columns": ["step", "line", "loss"], "data": LOSS}
    assert run.exit_code == 0
    assert run.history[-1]["step"] == 33
    # Figures over training are rows with their step, which W&B draws against it by itself.
    seen = [
        (row["step"], row["stability/tid/mean"])
        for row in run.history
        if "stability/tid/mean" in row
    ]
    assert seen == [(20, 0.5)]
    home = tmp_path / "home"
    assert not home.exists() or list(home.rglob("*")) == []


def test_a_record_without_figures_leaves_no_chart(tmp_path):
    wandb = sink("offline", seconds=60.0)
    wandb.open(info(tmp_path))
    wandb.close(record())
    path = offline(tmp_path)
    assert panels(path) == {}
    assert read(path).exit_code == 0


def test_a_resumed_run_draws_its_whole_loss(tmp_path):
    before = Jsonl()
    before.open(info(tmp_path))
    for row in ROWS[:2]:
        before.log(row)
    before.log({"step": 25, "train/loss": 9.0})  # after the checkpoint: trained again
    before.close(None)
    wandb = sink("offline", seconds=60.0)
    wandb.open(info(tmp_path, resumed_step=20))
    wandb.log({"step": 30, "train/loss": 3.0, "stability/spikes/count": 1.0})
    wandb.close(record(stability={}))
    training = [row for row in table(offline(tmp_path), "loss")["data"] if row[1] == "training"]
    assert training == [[10, "training", 5.0], [20, "training", 7.0], [30, "training", 3.0]]


def test_a_chart_that_fails_costs_neither_the_run_nor_its_end_at_wandb(
    tmp_path, monkeypatch, caplog
):
    def broken(*args, **kwargs):
        raise RuntimeError("no such preset")

    monkeypatch.setattr("wandb.plot_table", broken)
    group = SinkGroup({"wandb": sink("offline", seconds=60.0)})
    group.open(info(tmp_path))
    group.log(ROWS[0])
    group.close(record(stability=FIGURES))
    assert "sink wandb stopped, training goes on: RuntimeError: no such preset" in caplog.text
    run = read(offline(tmp_path))
    assert run.exit_code == 0
    assert run.summary["test/bleu"] == 23.456
