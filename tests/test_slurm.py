"""A sweep on a real Slurm with two nodes on this machine; runs only with NORMLAB_SLURM=1.

During the sweep one node dies, and a run on the other reaches its time limit. It takes minutes.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from normlab.records.store import RECORD_FILE, RunStore
from tests.tiny_runs import tiny, write_corpus

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "scripts" / "slurm_local.sh"
PATIENCE = 480  # seconds: the test usually takes a minute, several on a busy machine
NORMS = ("ln", "bn")
SEEDS = (1, 2)


def reason_to_skip() -> str | None:
    if not os.environ.get("NORMLAB_SLURM"):
        return "a real Slurm takes minutes: set NORMLAB_SLURM=1"
    if find_spec("hydra_plugins") is None or find_spec("submitit") is None:
        return "the submitit launcher is not installed: pip install '.[slurm]'"
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    if not all(shutil.which(name, path=path) for name in ("slurmctld", "slurmd", "munged")):
        return "Slurm is not installed: apt-get install slurmctld slurmd munge"
    return None if os.geteuid() == 0 else "only root can start Slurm's daemons"


pytestmark = pytest.mark.skipif(bool(reason_to_skip()), reason=reason_to_skip() or "")


class Cluster:
    """A Slurm cluster for this test only: its files and its ports."""

    def __init__(self, home: Path):
        self.home = home
        self.environment = {
            **os.environ,
            "SLURM_LOCAL": str(home),
            "SLURM_LOCAL_PORT": str(20_000 + os.getpid() % 10_000),
            "SLURM_CONF": str(home / "slurm.conf"),
        }

    def script(self, *arguments: str) -> None:
        # The output is a file, because daemons inherit it and a pipe would never be closed.
        with tempfile.TemporaryFile() as said:
            command = ["bash", str(SCRIPT), *arguments]
            done = subprocess.run(command, env=self.environment, stdout=said, stderr=said)
            said.seek(0)
            assert done.returncode == 0, said.read().decode()

    def running_on(self, node: str) -> list[tuple[str, int]]:
        """Return the jobs that run on a node, each with its run's number."""
        command = ["squeue", "-h", "-r", "-t", "running", "-w", node, "-o", "%i %K"]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        pairs = (line.split() for line in done.stdout.splitlines())
        return [(job, int(number)) for job, number in pairs]

    def time_out(self, job: str) -> None:
        """Send the signal that Slurm sends to a submitit job shortly before its time limit."""
        command = ["scancel", "--signal=USR2", job]
        # scancel sends the signal again until it gets an answer, so it is killed after the first.
        asking = subprocess.Popen(command, env=self.environment, stderr=subprocess.DEVNULL)
        try:
            requeued = f"Requeuing JobId={job}("
            wait_for(lambda: [requeued] * (requeued in self.log), f"{job} is not queued again")
        finally:
            asking.kill()
            asking.wait()

    @property
    def log(self) -> str:
        return (self.home / "slurmctld.log").read_text(encoding="utf-8")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    # It has a short name, because paths of sockets are limited; the script creates and removes it.
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


def test_a_sweep_finishes_despite_a_dead_node_and_a_time_limit(cluster: Cluster, tmp_path: Path):
    runs = tmp_path / "runs"
    cells = [(norm, seed) for norm in NORMS for seed in SEEDS]
    long = ("budget.steps=400", "validate.every=400", "observe.checkpoint_every=20", "probe=[]")
    overrides = (
        *tiny(write_corpus(tmp_path / "corpus"), runs, *long, "sink=[console,jsonl]"),
        *(f"norm={','.join(NORMS)}", f"seed={','.join(map(str, SEEDS))}"),
        *("hydra/launcher=submitit_slurm", "hydra.launcher.cpus_per_task=1"),
        *("hydra.launcher.mem_gb=2", "hydra.launcher.max_num_timeout=1"),
    )
    sweep = subprocess.Popen(
        [sys.executable, "-m", "normlab", "train", "-m", *overrides],
        env=cluster.environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )

    def at_work(node: str) -> list[tuple[str, int]]:
        """Return the jobs on a node that have saved a checkpoint but not ended, with their runs."""
        saved = []
        for job, cell in cluster.running_on(node):
            norm, seed = cells[cell]
            folders = list(runs.glob(f"translation-{norm}-pre-*/seed{seed}"))
            ended = any((each / RECORD_FILE).exists() for each in folders)
            if not ended and any((each / "checkpoints/last.pt").exists() for each in folders):
                saved.append((job, cell))
        return saved

    try:
        ((job, late),) = wait_for(lambda: at_work("node1"), "nothing is saved on node1")
        cluster.time_out(job)
        ((_, lost),) = wait_for(lambda: at_work("node2"), "nothing is saved on node2")
        cluster.script("kill", "node2")
        output, _ = sweep.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        pytest.fail(cluster.log)
    finally:
        sweep.kill()
    assert sweep.returncode == 0, output.decode()
    records = [record for _, record in RunStore(runs).entries()]
    assert len(records) == len(cells)
    assert {record.outcome.status for record in records} == {"finished"}
    assert "node2 not responding, setting DOWN" in cluster.log
    for cell in (late, lost):
        (said,) = runs.glob(f".sweeps/.submitit/*_{cell}/*_log.err")
        assert "resumed at step" in said.read_text(encoding="utf-8")
