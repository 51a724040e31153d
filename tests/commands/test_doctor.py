import json
import socket

import pytest
import torch

from normlab.commands import doctor
from normlab.commands.doctor import check_folder, run_checks
from normlab.config import machine


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


def test_every_check_has_a_status_in_json_and_in_a_table(capsys):
    assert doctor.main(["--json"]) == 0
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)}
    assert list(checks) == ["device", "precision", "wandb", "cache", "runs"]
    assert checks["wandb"]["found"] == "mode auto is offline: no login"
    doctor.main([])
    text = capsys.readouterr().out
    assert all(len(line) <= 80 or "/" in line for line in text.splitlines())
    assert "-> to send runs: wandb login" in " ".join(text.split())


@pytest.mark.parametrize(
    ("features", "settled"),
    [("avx2 fma avx512_bf16", "bf16 (AVX512-BF16)"), ("avx2 fma", "fp32 (AVX2)")],
)
def test_what_auto_becomes_here_is_said(monkeypatch, features, settled):
    monkeypatch.setattr(machine, "gpu", lambda: None)
    monkeypatch.setattr(machine, "processor_features", lambda: frozenset(features.split()))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    found = {check.name: check.found for check in run_checks()}
    assert f"precision=auto is {settled}" in found["precision"]


def test_a_login_without_its_server_is_a_warning(monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    check = next(check for check in run_checks() if check.name == "wandb")
    assert check.status == "warn" and "refused" in check.found and "wandb sync" in check.advice
    assert "aaaa" not in check.found + check.advice


def test_a_failed_check_is_the_exit_status(monkeypatch, tmp_path, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setenv("NORMLAB_CACHE", str(tmp_path / "file" / "cache"))
    assert doctor.main(["--json"]) == 1
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)}
    assert checks["cache"]["status"] == "fail" and "NORMLAB_CACHE" in checks["cache"]["advice"]
    usage = doctor.shutil.disk_usage(tmp_path)._replace(free=2**30)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: usage)
    check = check_folder("cache", tmp_path / "new", "make room")
    assert (check.status, check.advice) == ("warn", "make room") and "1.0 GiB" in check.found
