"""`normlab wandb sync` and `workspace`, against a W&B server on this machine and against none."""

import fcntl
import json
import socket
import sys

import pytest
from filelock import FileLock

from normlab.cli import main
from normlab.data.cache import cache_root
from tests.sinks.offline_file import read
from tests.sinks.wandb_client import train_offline as train
from tests.sinks.wandb_server import KEY, Server, serving

pytestmark = pytest.mark.usefixtures("nobody_is_logged_in")


@pytest.fixture(autouse=True)
def _in_the_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def table(text: str) -> list[list[str]]:
    """Return the cells of the printed table below its head."""
    lines = [line.split() for line in text.splitlines()]
    return [line for line in lines if line and "seed" in line[0]]


def test_a_dry_run_shows_each_run_and_sends_nothing(tmp_path, capsys):
    first = train(tmp_path / "runs" / "a" / "seed1")
    train(tmp_path / "runs" / "a" / "seed2")
    assert main(["wandb", "sync", "--dry-run"]) == 0
    rows = table(capsys.readouterr().out)
    assert [row[0] for row in rows] == ["runs/a/seed1", "runs/a/seed2"]
    _, run_id, group, files, count, _, *state = rows[0]
    assert run_id == first.stem.removeprefix("run-")
    assert (group, files, count, " ".join(state)) == ("0123456789", "1", "2", "to send")
    assert main(["wandb", "sync", "--dry-run", "runs/a/seed2"]) == 0
    assert [row[0] for row in table(capsys.readouterr().out)] == ["runs/a/seed2"]
    assert not list(tmp_path.rglob("*.synced"))


def test_without_a_login_one_line_says_what_to_do_and_nothing_is_sent(tmp_path, capsys):
    train(tmp_path / "runs" / "a" / "seed1")
    assert main(["wandb", "sync"]) == 1
    error = capsys.readouterr().err.splitlines()
    assert len(error) == 1
    assert "no login for https://" in error[0]
    assert "wandb login" in error[0]
    assert not list(tmp_path.rglob("*.synced"))


def test_without_a_network_nothing_is_lost_and_a_second_try_sends(tmp_path, capsys, monkeypatch):
    path = train(tmp_path / "runs" / "a" / "seed1")
    content = path.read_bytes()
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{port}")
    assert main(["wandb", "sync"]) == 1
    error = capsys.readouterr().err
    assert "does not answer" in error
    assert "run the same command again" in error
    assert path.read_bytes() == content
    with serving() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        assert main(["wandb", "sync"]) == 0
        assert "sent 1 of 1 files" in capsys.readouterr().out
        (run,) = server.runs.values()
        assert [row["_step"] for row in run.history] == [5, 10]


def test_a_server_that_refuses_leaves_the_files_to_send(tmp_path, capsys, wandb_server: Server):
    path = train(tmp_path / "runs" / "a" / "seed1")
    wandb_server.refuses = True
    assert main(["wandb", "sync"]) == 1
    captured = capsys.readouterr()
    assert "sent 0 of 1 files" in captured.out
    assert f"not sent: {path.relative_to(tmp_path)}" in captured.err
    assert main(["wandb", "sync", "--dry-run"]) == 0
    assert "to send" in capsys.readouterr().out


def test_runs_arrive_with_what_a_dashboard_groups_by_and_are_sent_once(
    tmp_path, capsys, wandb_server: Server
):
    train(tmp_path / "runs" / "a" / "seed1")
    train(tmp_path / "runs" / "b" / "seed1", status="diverged", norm="ln")
    assert main(["wandb", "sync"]) == 0
    by_norm = {run.config["norm"]: run for run in wandb_server.runs.values()}
    assert set(by_norm) == {"bn", "ln"}
    bn, ln = by_norm["bn"], by_norm["ln"]
    assert bn.fields["project"] == "normlab"
    assert bn.fields["groupName"] == "0123456789"
    assert bn.fields["jobType"] == "norms"
    assert bn.fields["tags"] == ["bn", "pre", "toy", "b32", "smoke"]
    assert (bn.config["placement"], bn.config["batch_size"]) == ("pre", 32)
    assert bn.summary["valid/loss"] == {"min": 2.0}
    assert (bn.summary["outcome"], ln.summary["outcome"]) == ("finished", "diverged")
    assert ln.summary["outcome_reason"] == "loss is nan"
    assert (bn.exit_code, ln.exit_code) == (0, 0)
    capsys.readouterr()
    operations = len(wandb_server.operations)
    assert main(["wandb", "sync"]) == 0
    assert [row[-1] for row in table(capsys.readouterr().out)] == ["sent", "sent"]
    assert len(wandb_server.operations) == operations


def test_a_resumed_run_arrives_as_one(tmp_path, wandb_server: Server):
    folder = tmp_path / "runs" / "a" / "seed1"
    train(folder, status="interrupted")
    train(folder, resumed=10)
    assert main(["wandb", "sync"]) == 0
    (run,) = wandb_server.runs.values()
    assert [row["_step"] for row in run.history if "train/loss" in row] == [5, 10, 15, 20]
    assert run.summary["outcome"] == "finished"
    assert run.exit_code == 0


@pytest.mark.parametrize("count", [1, 2])
def test_rows_that_a_killed_sending_has_brought_there_are_not_sent_again(
    count, tmp_path, capsys, wandb_server: Server
):
    path = train(tmp_path / "runs" / "a" / "seed1")
    lines = {"offset": 0, "content": [json.dumps(row) for row in read(path).history[:count]]}
    wandb_server.stream(path.stem.removeprefix("run-"), {"files": {"wandb-history.jsonl": lines}})
    path.with_name(path.name + ".syncstate").write_text('{"starting_step":0,"starting_runtime":0}')
    lock = cache_root() / "wandb-sync.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # as W&B's process does that still ends
        assert main(["wandb", "sync", "--timeout", "0.5"]) == 1
    assert "is at work" in capsys.readouterr().err
    assert main(["wandb", "sync"]) == 0
    (run,) = wandb_server.runs.values()
    assert [row["_step"] for row in run.history] == [5, 10]
    assert (run.exit_code, run.summary["outcome"], run.summary["_step"]) == (0, "finished", 10)
    assert main(["wandb", "sync", "--dry-run"]) == 0
    assert table(capsys.readouterr().out)[-1][-1] == "sent"


def test_what_is_not_due_is_marked_and_left_alone(tmp_path, capsys, wandb_server: Server):
    begun_anew = tmp_path / "runs" / "a" / "seed1"
    train(begun_anew)
    train(begun_anew)
    killed = tmp_path / "runs" / "b" / "seed1"
    train(killed).write_bytes(b":W&B\xe1\xbe\x00")
    running = tmp_path / "runs" / "c" / "seed1"
    path = train(running)
    path.write_bytes(path.read_bytes()[:-200])  # its end is still to come
    with FileLock(running / ".lock"):
        assert main(["wandb", "sync"]) == 0
    states = [(row[0], row[-1]) for row in table(capsys.readouterr().out)]
    assert sorted(states) == [
        ("runs/a/seed1", "replaced"),
        ("runs/a/seed1", "send"),
        ("runs/b/seed1", "empty"),
        ("runs/c/seed1", "running"),
    ]
    assert len(wandb_server.runs) == 1
    assert main(["wandb", "sync", "runs/c"]) == 0  # killed since: what there is goes
    assert len(wandb_server.runs) == 2


@pytest.mark.parametrize(
    ("place", "message"), [("nowhere", "no such run"), (".", "no run here has offline files")]
)
def test_a_place_without_runs_is_one_clear_line(place, message, capsys):
    assert main(["wandb", "sync", place]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"normlab wandb: {place}: {message}")
    assert len(error.splitlines()) == 1


def test_a_damaged_file_is_named(tmp_path, capsys):
    path = train(tmp_path / "runs" / "a" / "seed1")
    path.write_bytes(b"something else")
    assert main(["wandb", "sync", "--dry-run"]) == 1
    assert f"{path.relative_to(tmp_path)}: not a run of W&B" in capsys.readouterr().err


def test_the_view_groups_and_filters_by_config_keys_along_the_training_step(capsys):
    arguments = ["--where", "norm=ln,bn", "--where", "batch_size=32", "--project", "mine"]
    assert main(["wandb", "workspace", "--dry-run", "--json", *arguments]) == 0
    view = json.loads(capsys.readouterr().out)
    assert (view["project"], view["name"], view["entity"]) == ("mine", "normlab", None)
    section = view["spec"]["section"]
    (runs,) = section["runSets"]
    assert [key["name"] for key in runs["grouping"]] == [
        *("task.value", "corpus.value", "scale.value"),
        *("batch.value", "norm.value", "placement.value"),
    ]
    filters = [(item["key"]["name"], item["value"]) for item in runs["filters"]["filters"]]
    assert filters == [("norm", ["ln", "bn"]), ("batch_size", [32])]
    assert section["settings"]["xAxis"] == "step"
    panels = [
        panel["config"]
        for part in section["panelBankConfig"]["sections"]
        for panel in part["panels"]
        if panel["viewType"] == "Run History Line Plot"
    ]
    assert {panel["xAxis"] for panel in panels} == {"step", "_runtime"}


def test_the_view_is_printed_for_people(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["wandb", "workspace", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split()[-1] == "stability/tid/mean" for line in lines if "TID" in line)
    (panel,) = [line for line in lines if "BLEU by batch size and norm" in line]
    assert panel.split()[-1] == "test/bleu"
    assert lines[-1] == "runs grouped by task, corpus, scale, batch, norm, placement; shown: all"


def test_the_view_is_saved_and_its_address_printed(capsys, wandb_server: Server):
    assert main(["wandb", "workspace", "--name", "mine", "--where", "task=toy"]) == 0
    (saved,) = wandb_server.views
    assert (saved["entityName"], saved["projectName"]) == ("tester", "normlab")
    assert saved["displayName"] == "mine"
    names = [
        part["name"] for part in json.loads(saved["spec"])["section"]["panelBankConfig"]["sections"]
    ]
    assert names[:2] == ["Comparison by norm", "Loss"]
    assert capsys.readouterr().out.startswith(f"{wandb_server.url}/tester/normlab?nw=")


def test_a_view_without_login_or_with_a_wrong_key_is_one_clear_line(
    capsys, monkeypatch, wandb_server: Server
):
    wandb_server.refuses = True
    assert main(["wandb", "workspace", "--entity", "tester"]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("normlab wandb: W&B refuses: ")
    assert "invalid key" in error
    monkeypatch.delenv("WANDB_API_KEY")
    assert main(["wandb", "workspace"]) == 1
    assert "log in first by `wandb login`" in capsys.readouterr().err
    assert wandb_server.views == []


def test_without_the_package_the_error_says_how_to_get_it(capsys, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("wandb_workspaces")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "wandb_workspaces", None)
    assert main(["wandb", "workspace", "--dry-run"]) == 1
    assert "pip install -c constraints.txt wandb-workspaces" in capsys.readouterr().err


def test_a_filter_that_is_none_is_refused(capsys):
    assert main(["wandb", "workspace", "--dry-run", "--where", "norm"]) == 1
    assert "--where norm: expected KEY=VALUE" in capsys.readouterr().err
