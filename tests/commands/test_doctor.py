import json
import socket

import pytest
import torch

from normlab.commands import doctor
from normlab.config import machine
from normlab.training.machine_checks import run_checks


@pytest.fixture(autouse=True)
def _no_network(monkeypatch, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{port}")  # closed: refuses at once
    for name in ("WANDB_API_KEY", "WANDB_MODE", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_doctor_shows_its_checks_as_json_or_as_a_table(capsys):
    assert doctor.main(["--json"]) == 0
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)}
    assert list(checks) == ["device", "precision", "wandb"]
    assert checks["wandb"]["result"] == "mode=auto is offline, because there is no login"
    doctor.main([])
    text = capsys.readouterr().out
    assert "-> run wandb login to send runs" in " ".join(text.split())


def test_doctor_says_what_precision_auto_resolves_to(monkeypatch):
    monkeypatch.setattr(machine, "gpu", lambda: None)
    monkeypatch.setattr(machine, "processor_features", lambda: frozenset({"avx2", "fma"}))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    results = {check.name: check.result for check in run_checks()}
    assert "precision=auto is fp32 (AVX2)" in results["precision"]


def test_an_unreachable_wandb_server_is_a_warning_that_hides_the_key(monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    check = next(check for check in run_checks() if check.name == "wandb")
    assert check.status == "warn" and "refused" in check.result and "wandb sync" in check.advice
    assert "aaaa" not in check.result + check.advice
