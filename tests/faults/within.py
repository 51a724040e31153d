"""What a process of the harness has around it in place of the user's own."""

import os
import signal
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from normlab.cli import main
from normlab.registry import CONFIG_DIR
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
        import normlab.sweep
        from normlab import studies
        from normlab.commands import _grid, claims, new, reproduce, tune

        os.setsid()  # what it leaves behind can be ended with it
        os.environ["NORMLAB_CACHE"] = str(self.cache)
        own = self.place / "configs"
        configs = own if own.is_dir() else CONFIG_DIR
        studies.load_study.__defaults__ = (configs,)
        tune.study_file = lambda name: configs / "study" / f"{name}.yaml"
        _grid.data_problem = lambda run: None
        reproduce.measured = _unmeasured
        claims._compute = lambda claims: {}
        normlab.sweep.subprocess = SimpleNamespace(Popen=ForkedCell, STDOUT=subprocess.STDOUT)  # type: ignore[assignment]
        new.places = self._places
        if self.fault is not None:
            self.fault.install()

    def _places(self, name: str) -> tuple[Path, Path]:
        return self.place / "norms" / f"{name}.py", self.place / "norm" / f"{name}.yaml"


def _unmeasured(study: Any, scale: Any, items: Any, probes: Any, *_: object) -> Any:
    from normlab.commands._plan import Plan

    return replace(Plan(study, scale, items, len(probes.places)), unmeasured="in a test")


class ForkedCell:
    """Stands where a sweep starts the interpreter: a fork, which has imported everything."""

    def __init__(self, command: list[str], *, env: dict[str, str], stdout: Any, stderr: int):
        self.status: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                # New streams: another thread of the sweep may have been printing into the old.
                say_into(stdout.fileno())
                os.environ.update(env)
                status = main(command[3:])
            finally:
                os._exit(status)

    def wait(self) -> int:
        """Wait for its end; minus the signal that killed it, as of a subprocess."""
        self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.status

    def terminate(self) -> None:
        """Tell it to stop."""
        if self.status is None:
            os.kill(self.pid, signal.SIGTERM)
