"""A sweep on a real Slurm of two nodes, brought up on this machine; one of them dies on the way."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from normlab.records.store import RunStore
from tests.tiny_runs import tiny, write_corpus

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "scripts" / "slurm_local.sh"
PATIENCE = 480  # seconds until a hang is a hang: a minute is usual, several on a busy machine
NORMS = ("ln", "bn", "none")
SEEDS = (1, 2)


def reason_to_skip() -> str | None:
    if find_spec("hydra_plugins") is None or find_spec("submitit") is None:
        return "the submitit launcher is not installed: pip install '.[slurm]'"
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    if not all(shutil.which(name, path=path) for name in ("slurmctld", "slurmd", "munged")):
        return "Slurm is not installed: apt-get install slurmctld slurmd munge"
    if os.geteuid() != 0:
        return "only root can start Slurm's daemons"
    if subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True).returncode:
        return "this container may not make PID namespaces, which are the nodes"
    return None


pytestmark = pytest.mark.skipif(bool(reason_to_skip()), reason=reason_to_skip() or "")


class Cluster:
    """A Slurm of this test's own: its files and its ports."""

    def __init__(self, home: Path):
        self.home = home
        self.environment = {
            **os.environ,
            "SLURM_LOCAL": str(home),
            "SLURM_LOCAL_PORT": str(free_ports(3)),
            "SLURM_CONF": str(home / "slurm.conf"),
        }

    def script(self, *arguments: str) -> None:
        # Daemons inherit the output, so it is a file: the end of a pipe would never come.
        with tempfile.TemporaryFile() as said:
            command = ["bash", str(SCRIPT), *arguments]
            done = subprocess.run(command, env=self.environment, stdout=said, stderr=said)
            said.seek(0)
            assert done.returncode == 0, said.read().decode()

    def running_on(self, node: str) -> list[int]:
        """Return the numbers of the cells that run on a node."""
        command = ["squeue", "-h", "-r", "-t", "running", "-w", node, "-o", "%K"]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        return [int(number) for number in done.stdout.split()]

    @property
    def log(self) -> str:
        return (self.home / "slurmctld.log").read_text(encoding="utf-8")


def free_ports(count: int) -> int:
    """Return the first of some ports in a row that nobody listens on."""
    for first in range(17000, 30000, count):
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
    raise AssertionError("no free ports")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    # Of a short name, since the paths of sockets are limited; the script makes and removes it.
    found = Cluster(Path(tempfile.gettempdir()) / f"slurm-{uuid.uuid4().hex[:8]}")
    try:
        found.script("start", "2")
        yield found
    finally:
        found.script("stop")


def wait_for(condition: Callable[[], list], what: str) -> list:
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.1)
    return found


def test_a_sweep_outlives_one_of_its_nodes(cluster: Cluster, tmp_path: Path):
    runs = tmp_path / "runs"
    overrides = tiny(
        write_corpus(tmp_path / "corpus"),
        runs,
        "budget.steps=200",
        "validate.every=200",
        "observe.checkpoint_every=20",
        "probe=[]",
        "sink=[console,jsonl]",
        f"norm={','.join(NORMS)}",
        f"seed={','.join(map(str, SEEDS))}",
        "hydra/launcher=submitit_slurm",
        "hydra.launcher.cpus_per_task=1",
        "hydra.launcher.mem_gb=2",
    )
    sweep = subprocess.Popen(
        [sys.executable, "-m", "normlab", "train", "-m", *overrides],
        env=cluster.environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        (cell,) = wait_for(lambda: cluster.running_on("node2"), "nothing runs on the second node")
        norm, seed = [(norm, seed) for norm in NORMS for seed in SEEDS][cell]
        place = f"translation-{norm}-pre-*/seed{seed}"
        wait_for(lambda: list(runs.glob(f"{place}/checkpoints/last.pt")), f"{place} saves nothing")
        cluster.script("kill", "node2")
        assert not list(runs.glob(f"{place}/record.json")), "it had ended before its node died"
        output, _ = sweep.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        pytest.fail(cluster.log)
    finally:
        sweep.kill()
    assert sweep.returncode == 0, output.decode()
    records = RunStore(runs).records()
    assert len(records) == 6
    assert {record.outcome.status for record in records} == {"finished"}
    assert "node2 not responding, setting DOWN" in cluster.log
    (said,) = runs.glob(f".sweeps/.submitit/*_{cell}/*_log.err")
    assert "resumed at step" in said.read_text(encoding="utf-8")
