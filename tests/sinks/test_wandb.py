import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from normlab.records.record import Outcome, Score
from normlab.train.console import Console
from normlab.train.sinks import SinkGroup
from normlab.train.wandb import (
    CLOUD,
    Login,
    dashboard_config,
    display_name,
    find_login,
    resolve_mode,
    tags,
)
from tests.sinks.offline_file import OfflineRun, read
from tests.sinks.runs import CHOICES, FINGERPRINT, SIGNATURE, info, record, scores
from tests.sinks.wandb_client import files, sink
from tests.sinks.wandb_server import KEY

pytestmark = pytest.mark.usefixtures("nobody_is_logged_in")


@pytest.fixture(scope="module")
def offline(tmp_path_factory) -> OfflineRun:
    """One run of two evaluations, written without a login and read back."""
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder / "home"))
        patch.delenv("WANDB_API_KEY", raising=False)
        wandb = sink()
        line = wandb.open(info(folder))
        assert line is not None
        assert line.startswith("W&B: kept offline (no login, see `wandb login`); to send it: ")
        for step in range(10, 110, 10):
            wandb.log({"step": step, "train/loss": 50 / step})
            if step == 60:
                wandb.log({"step": 60}, scores(30.25, 2.5))
        wandb.log({"step": 100}, scores(10.0, 1.5))
        wandb.close(
            record(
                scores={
                    "valid/bleu": Score(30.25, True, 10),
                    "valid/loss": Score(2.5, False, 10),
                    "test/bleu": Score(23.456, True, 1000, SIGNATURE),
                }
            )
        )
    (path,) = files(folder)
    return read(path)


def test_a_run_is_found_by_its_group_tags_and_config(offline):
    assert (offline.run.project, offline.run.job_type) == ("normlab", "norms")
    assert offline.run.run_group == FINGERPRINT
    assert list(offline.run.tags) == ["bn", "pre", "toy", "b32", "smoke"]
    assert offline.run.display_name == f"toy-bn-pre-b32-{FINGERPRINT}-seed1"
    wanted = {"batch_size": 32, "norm": "bn", "placement": "pre", "task": "toy", "seed": 1}
    assert wanted.items() <= {key: offline.config[key] for key in wanted}.items()
    assert offline.config["nodes"]["norm"]["eps"] == 1e-5


def test_a_step_is_one_row_and_the_summary_has_ranges_and_the_record(offline):
    steps = [row["step"] for row in offline.history]
    assert steps == [row["_step"] for row in offline.history] == list(range(10, 110, 10))
    assert offline.history[5]["train/loss"] == 50 / 60
    assert offline.history[5]["valid/bleu"] == 30.25
    assert offline.summary["valid/bleu"] == {"min": 10.0, "max": 30.25}
    assert offline.summary["valid/loss"] == {"min": 1.5, "max": 2.5}
    assert offline.summary["test/bleu"] == 23.456
    assert offline.summary["stability/spikes/count"] == 2.0
    assert offline.summary["outcome"] == "finished" and offline.exit_code == 0


def test_a_run_begun_anew_has_a_new_id(tmp_path):
    for _ in range(2):
        wandb = sink("offline")
        wandb.open(info(tmp_path))
        wandb.close(record(outcome=Outcome("diverged", 3, "loss is nan", "encoder.0")))
    first, second = (read(path) for path in files(tmp_path))
    assert first.run.run_id != second.run.run_id
    assert second.summary["outcome"] == "diverged"
    assert second.exit_code == 0  # a divergence is a result


def test_disabled_writes_nothing(tmp_path):
    wandb = sink("disabled")
    assert wandb.open(info(tmp_path)) is None
    wandb.log({"step": 1}, scores(1.0, 1.0))
    wandb.close(record())
    assert list(tmp_path.iterdir()) == []


SCRIPT = """
import random, sys
from pathlib import Path
import numpy, torch
from tests.sinks.wandb_client import sink
from tests.sinks.runs import info, record, scores
numbers = lambda: numpy.random.get_state()[1].tolist()
state = lambda: (random.getstate(), numbers(), torch.get_rng_state().tolist())
before = state()
wandb = sink()
wandb.open(info(Path(sys.argv[1])))
wandb.log({"step": 1, "train/loss": float("nan")}, scores(1.0, 1.0))
wandb.close(record(stability={"stability/gradients/norm/encoder.0": 1.0}))
assert state() == before, "random state moved"
"""


def test_it_prints_nothing_writes_in_the_run_folder_only_and_leaves_random_states(tmp_path):
    home, work, run = (tmp_path / name for name in ("home", "work", "run"))
    home.mkdir()
    work.mkdir()
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(run)],
        cwd=work,
        capture_output=True,
        text=True,
        env={**os.environ, "HOME": str(home), "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert len(files(run)) == 1
    assert [*home.rglob("*"), *work.rglob("*")] == []


def test_a_server_that_does_not_answer_costs_seconds_and_the_run_stays_offline(
    tmp_path, monkeypatch, capfd
):
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    with socket.create_server(("127.0.0.1", 0)) as server:  # accepts and stays silent
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        wandb = sink()
        started = time.monotonic()
        line = wandb.open(info(tmp_path))
        wandb.log({"step": 1, "train/loss": 2.0})
        wandb.close(record())
        assert time.monotonic() - started < 20
    assert line is not None
    assert line.startswith("W&B: kept offline (")
    assert "no login" not in line
    (path,) = files(tmp_path)
    assert read(path).history[0]["train/loss"] == 2.0
    assert capfd.readouterr() == ("", "")


def test_a_broken_service_is_one_note_and_training_goes_on(tmp_path, capsys, monkeypatch):
    def no_service(*args, **kwargs):
        raise RuntimeError("no service")

    monkeypatch.setattr("wandb.init", no_service)
    group = SinkGroup({"wandb": sink("offline"), "console": Console(style="plain")})
    group.open(info(tmp_path))
    for step in (1, 2):
        group.log({"step": step})
    group.close(None)
    assert [line for line in capsys.readouterr().err.splitlines() if "wandb" in line] == [
        "sink wandb stopped, training continues: RuntimeError: no service"
    ]


@pytest.mark.parametrize(
    ("mode", "wish", "source", "settled"),
    [
        ("auto", None, None, "offline"),
        ("auto", None, "WANDB_API_KEY", "online"),
        ("auto", "disabled", "WANDB_API_KEY", "disabled"),
        ("offline", "online", "WANDB_API_KEY", "offline"),
    ],
)
def test_modes(mode, wish, source, settled, monkeypatch):
    if wish:
        monkeypatch.setenv("WANDB_MODE", wish)
    assert resolve_mode(mode, Login(CLOUD, source)) == settled


def test_a_login_is_found_where_wandb_keeps_it(tmp_path, monkeypatch):
    home = tmp_path / "home"
    (home / ".config" / "wandb").mkdir(parents=True)
    default = find_login().host
    assert find_login() == Login(default, None)
    for host in (CLOUD, default):  # W&B's cloud has moved; logins of before still serve
        name = host.removeprefix("https://")
        (home / ".netrc").write_text(f"machine {name}\n  login user\n  password {KEY}\n")
        assert find_login() == Login(default, "netrc")
    settings = home / ".config" / "wandb" / "settings"
    settings.write_text("[default]\nbase_url = https://wandb.example.org\n")
    assert find_login() == Login("https://wandb.example.org", None)  # the key is another server's
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    assert find_login().source == "WANDB_API_KEY"


def test_a_run_of_a_batch_sweep_on_a_corpus_is_told_by_its_name_its_tags_and_its_config(tmp_path):
    choices = {**CHOICES, "task": "mlm", "task/corpus": "brown"}
    sizes = {"seed": 3, "batch_size": None, "max_tokens": 4096, "accumulate": 2}
    run = info(tmp_path, config={**sizes, "choices": choices})
    assert display_name(run) == f"mlm-brown-bn-pre-2x4096tok-{run.fingerprint}-seed3"
    assert tags(choices, run.config) == ["bn", "pre", "mlm", "brown", "2x4096tok", "smoke"]
    found = dashboard_config(run)
    assert [found[key] for key in ("corpus", "batch", "norm")] == ["brown", "2x4096tok", "bn"]
