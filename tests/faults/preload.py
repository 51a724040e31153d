"""What the server of the long harness has done before it forks a process for each command.

It has carried out a run and what reads one, so that no killed process spends its life on imports.
"""

import contextlib
import gc
import io
import os
import tempfile
from pathlib import Path

import yaml

import tests.tiny_runs_preload
from normlab.cli import main
from tests.faults.scenes import Stage
from tests.tiny_runs import write_corpus

READERS = ("eval", "inspect", "plot", "page", "export", "card")


def warm_up() -> None:
    """Carry out commands below a folder of their own."""
    yaml.SafeLoader = yaml.CSafeLoader  # type: ignore  # reads the same in a fifth of the time
    with tempfile.TemporaryDirectory(prefix="normlab-warm-") as folder:
        work = Path(folder)
        stage = Stage(work, write_corpus(work / "text"))
        os.environ["NORMLAB_CACHE"] = str(work / "cache")
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            stage.place.mkdir()
            _well(stage.scenes["train"].argv, said)
            (record,) = stage.place.rglob("record.json")
            record.parent.parent.rename(stage.place / "runs" / "bn")
            for name in READERS:
                _well(stage.scenes[name].argv, said)
    gc.freeze()


def _well(argv: tuple[str, ...], said: io.StringIO) -> None:
    assert main(list(argv)) == 0, said.getvalue()


PRELOADED = (tests.tiny_runs_preload,)
warm_up()
