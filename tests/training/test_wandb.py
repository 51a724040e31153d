"""What is sent to W&B (a test server or offline files), which never disturbs a run."""

import socket
import time
from unittest.mock import MagicMock

import numpy
import pytest

from normlab.records.record import Outcome, Score
from normlab.training.sinks import Jsonl
from normlab.training.wandb import (
    CLOUD,
    Login,
    dashboard_config,
    display_name,
    find_login,
    groups,
    resolve_mode,
    tags,
)
from tests.training.sink_runs import CHOICES, CONFIG, FINGERPRINT, info, record, scores
from tests.training.wandb_client import files, sink
from tests.training.wandb_server import KEY, Server

pytestmark = pytest.mark.usefixtures("nobody_is_logged_in")


def train(folder, mode, steps, *, resumed=0, ends=False):
    """Train to the last of the steps with a validation at every 20th; `ends` writes a record."""
    jsonl, wandb = Jsonl(), sink(mode, seconds=20.0)
    jsonl.open(info(folder, resumed_step=resumed))
    notice = wandb.open(info(folder, resumed_step=resumed))
    for step in steps:
        row, found = {"step": step, "train/loss": 100 / step}, scores(float(step), 50 / step)
        for each in (jsonl, wandb):
            each.log(row)
            if step % 20 == 0:
                each.log({"step": step}, found)
    ended = {**scores(20.0, 2.5), "test/bleu": Score(23.456, True, 1000)}
    final = record(outcome=Outcome("finished", steps[-1]), scores=ended) if ends else None
    jsonl.close(final)
    wandb.close(final)
    return notice and notice.text


def curve(rows):
    return [row["_step"] for row in rows if "train/loss" in row]


@pytest.fixture
def resumed(tmp_path, wandb_server: Server):
    """Return the server's data on a run that was resumed at step 20 and ended at step 60."""
    train(tmp_path, "online", [10, 20, 30, 40])
    train(tmp_path, "online", [30, 40, 50, 60], resumed=20, ends=True)
    (run,) = wandb_server.runs.values()
    return run


def test_a_resumed_run_has_each_step_once(resumed, capfd):
    assert curve(resumed.history) == [10, 20, 30, 40, 50, 60]
    assert resumed.history[1]["valid/bleu"] == 20.0 and resumed.exit_code == 0
    assert "monotonically" not in capfd.readouterr().err


def test_the_summary_contains_the_last_and_extreme_scores_and_the_outcome(resumed):
    run = resumed
    assert run.summary["valid/bleu"] == {"min": 20, "max": 60, "last": 60}
    assert run.summary["valid/loss"] == {"min": 50 / 60, "max": 2.5, "last": 50 / 60}
    assert run.summary["test/bleu"] == 23.456 and run.summary["outcome"] == "finished"
    assert run.summary["stability/spikes/count"] == 2.0


def test_a_run_can_be_filtered_by_group_job_type_tags_and_config(resumed):
    run = resumed
    assert run.fields["groupName"] == "bn-pre-b32" and run.fields["jobType"] == "norms"
    assert run.fields["displayName"] == f"toy-bn-pre-b32-{FINGERPRINT}-seed1"
    assert run.fields["tags"] == ["bn", "pre", "toy", "b32", "smoke"]
    wanted = {"batch_size": 32, "norm": "bn", "placement": "pre", "task": "toy", "seed": 1}
    assert wanted == {key: run.config[key] for key in wanted}
    assert run.config["nodes"]["norm"]["eps"] == 1e-5


def test_a_run_that_resumes_online_also_uploads_its_offline_rows(tmp_path, wandb_server: Server):
    train(tmp_path, "offline", [10, 20, 30])
    line = train(tmp_path, "online", [30, 40], resumed=20, ends=True)
    assert line is not None and wandb_server.url in line
    (run,) = wandb_server.runs.values()
    assert curve(run.history) == [10, 20, 30, 40] and not files(tmp_path)


def test_a_run_resumed_offline_keeps_its_file_and_a_new_run_gets_another(tmp_path, capfd):
    """Nothing is printed, numpy's random state stays, and only the run's folder is written to."""
    state = numpy.random.get_state()[1].tolist()
    line = train(tmp_path, "auto", [10, 20, 30])
    assert line is not None and line.startswith("W&B: kept offline (no login; run `wandb login`)")
    (first,) = files(tmp_path)
    train(tmp_path, "auto", [30, 40], resumed=20, ends=True)
    (second,) = files(tmp_path)
    assert first != second and first.name == second.name  # named by the run's id
    train(tmp_path, "offline", [10], ends=True)
    assert len({path.name for path in files(tmp_path)}) == 2
    train(tmp_path / "none", "disabled", [10])
    assert [path.name for path in (tmp_path / "none").iterdir()] == ["metrics.jsonl"]
    assert capfd.readouterr() == ("", "") and not (tmp_path / "home").exists()
    assert state == numpy.random.get_state()[1].tolist()


def test_an_unresponsive_server_delays_a_run_by_seconds_and_the_run_stays_offline(
    tmp_path, monkeypatch, capfd
):
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    with socket.create_server(("127.0.0.1", 0)) as server:  # accepts and stays silent
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        wandb = sink()
        started = time.monotonic()
        line = str(wandb.open(info(tmp_path)))
        wandb.log({"step": 1, "train/loss": 2.0})
        wandb.close(record())
        assert time.monotonic() - started < 20
    assert line.startswith("W&B: kept offline (") and "no login" not in line
    assert len(files(tmp_path)) == 1 and capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("mode", "wish", "source", "settled"),
    [
        ("auto", None, None, "offline"),
        ("auto", None, "WANDB_API_KEY", "online"),
        ("auto", "disabled", "WANDB_API_KEY", "disabled"),
        ("offline", "online", "WANDB_API_KEY", "offline"),
    ],
)
def test_the_mode_follows_the_config_then_wandb_mode_then_the_login(
    mode, wish, source, settled, monkeypatch
):
    if wish:
        monkeypatch.setenv("WANDB_MODE", wish)
    assert resolve_mode(mode, Login(CLOUD, source)) == settled


def test_a_login_is_found_where_wandb_stores_it(tmp_path, monkeypatch):
    home = tmp_path / "home"
    (home / ".config" / "wandb").mkdir(parents=True)
    default = find_login().host
    assert find_login() == Login(default, None)
    for host in (CLOUD, default):  # W&B's cloud has moved; earlier logins still work
        name = host.removeprefix("https://")
        (home / ".netrc").write_text(f"machine {name}\n  login user\n  password {KEY}\n")
        assert find_login() == Login(default, "netrc")
    settings = home / ".config" / "wandb" / "settings"
    settings.write_text("[default]\nbase_url = https://wandb.example.org\n")
    assert find_login() == Login("https://wandb.example.org", None)  # the key is another server's
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    assert find_login().source == "WANDB_API_KEY"


def test_name_tags_and_config_of_a_run_contain_its_corpus_and_batch_size(tmp_path):
    choices = {**CHOICES, "task": "mlm", "task/corpus": "brown"}
    sizes = {"seed": 3, "batch_size": None, "max_tokens": 4096, "accumulate": 2}
    run = info(tmp_path, config={**sizes, "choices": choices})
    assert display_name(run) == f"mlm-brown-bn-pre-2x4096tok-{run.fingerprint}-seed3"
    assert tags(choices, run.config) == ["bn", "pre", "mlm", "brown", "2x4096tok", "smoke"]
    found = dashboard_config(run)
    assert [found[key] for key in ("corpus", "batch", "norm")] == ["brown", "2x4096tok", "bn"]


LAYERS = {"stability/residual/rms/encoder.0.ffn": 1.0, "stability/residual/growth": 2.0}
OTHERS = {"stability/residual/last": 3.0, "valid/nll": 2.0, "test/length_ratio": 1.0}


@pytest.mark.parametrize(("layers", "sent"), [(False, {"stability/residual/growth"}), (True, None)])
def test_one_number_per_probe_is_sent_unless_layers_are_requested(
    layers, sent, tmp_path, monkeypatch
):
    client = MagicMock()
    monkeypatch.setattr("wandb.init", lambda **given: client)
    wandb = sink("offline", layers=layers)
    wandb.open(info(tmp_path))
    wandb.log({"step": 1, "train/loss": 2.0, **LAYERS, **OTHERS}, scores(20.0, 2.5))
    wandb.close(record(stability={**LAYERS, **OTHERS}))
    always = {"step", "train/loss", "valid/bleu", "valid/loss"}
    logged = client.log.call_args_list[0].args[0]
    assert logged.keys() == always | (sent or {*LAYERS, *OTHERS})
    summary = client.summary.update.call_args.args[0]
    assert {name for name in summary if "stability" in name} == {
        name for name in sent or {*LAYERS, *OTHERS} if "stability" in name
    }


def test_sweep_axes_missing_from_the_label_are_added_to_the_group_shared_by_seeds():
    runs = [
        (
            {**CONFIG, "batch_size": size},
            ("norm=bn", f"batch_size={size}", f"optim.lr={rate}", f"seed={seed}"),
        )
        for size in (8, 32)
        for rate in ("1e-3", "5e-4")
        for seed in (1, 2)
    ]
    names = groups(runs)
    assert names[:4] == ["bn-pre-b8 optim.lr=1e-3"] * 2 + ["bn-pre-b8 optim.lr=5e-4"] * 2
    assert len({*names}) == 4 and names[-1].startswith("bn-pre-b32")


def test_offline_by_wandb_mode_is_reported_as_requested_even_without_a_login(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    line = train(tmp_path, "auto", [10])
    assert line is not None and line.startswith("W&B: kept offline (as requested)")


def test_generated_names_and_tags_stay_within_the_length_limits_of_wandb(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr("wandb.init", lambda **given: calls.append(given) or MagicMock())
    sites = "+".join(f"encoder.{layer}.self.out_batchnorm" for layer in range(9))
    sink("offline").open(info(tmp_path, config={**CONFIG, "choices": {**CHOICES, "sites": sites}}))
    (given,) = calls
    assert (
        max(map(len, given["tags"])) == 64 and max(len(given["name"]), len(given["group"])) <= 128
    )
