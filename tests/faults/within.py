"""What a process of the harness has around it in place of the user's own."""

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from normlab.cli import main
from normlab.config.registry import CONFIG_DIR
from tests.faults.failing import Fault
from tests.tiny_runs import say_into


@dataclass(frozen=True)
class Within:
    """What a process of the harness has around it in place of the user's own."""

    place: Path
    cache: Path
    fault: Fault | None = None

    def install(self) -> None:
        """Prepare this process: cells are forks of it, and nothing is measured or computed."""
        import normlab.studies.local
        from normlab import studies
        from normlab.commands import _study_tune, norm
        from normlab.inspect import computed
        from normlab.studies import runs

        os.setsid()  # what it leaves behind can be ended with it
        os.environ["NORMLAB_CACHE"] = str(self.cache)
        own = self.place / "configs"
        configs = own if own.is_dir() else CONFIG_DIR
        studies.load_study.__defaults__ = (configs,)
        _study_tune.study_file = lambda name: configs / "study" / f"{name}.yaml"
        runs.data_problem = lambda run: None
        computed.compute = lambda name: []
        forks: Any = SimpleNamespace(Popen=ForkedCell, STDOUT=subprocess.STDOUT)
        normlab.studies.local.subprocess = forks
        norm.places = self._places
        if self.fault is not None:
            self.fault.install()

    def _places(self, name: str) -> tuple[Path, Path]:
        return self.place / "norms" / f"{name}.py", self.place / "norm" / f"{name}.yaml"


class ForkedCell:
    """Stands where a sweep starts the interpreter: a fork, which has imported everything."""

    def __init__(self, command: list[str], *, env: dict[str, str], stdout: Any, stderr: int):
        self.status: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                say_into(stdout.fileno())
                os.environ.update(env)
                status = main(command[3:])
            finally:
                os._exit(status)

    def wait(self) -> int | None:
        """Wait for its end; minus the signal that killed it, as of a subprocess."""
        return self.poll(0)

    def poll(self, how: int = os.WNOHANG) -> int | None:
        """Return its exit status, None while it runs."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, how)
            self.status = os.waitstatus_to_exitcode(status) if pid else None
        return self.status

    def terminate(self) -> None:
        """Tell it to stop."""
        if self.status is None:
            os.kill(self.pid, signal.SIGTERM)
