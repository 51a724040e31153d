"""A program in place of the Python interpreter, so that the runs of studies take no time.

`-P -m normlab train OVERRIDES` writes the record that a test has planned into the run's folder; if
it is asked to stop, it ends like a run that has saved its state.
"""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

from normlab.config.machine import settled_device
from normlab.records.record import Outcome, Score
from normlab.records.store import run_id
from normlab.studies import study_runs as studied
from normlab.studies.process_pool import last_of_each_key
from tests.records.examples import changed, record

PROGRAM = """\
#!{python} -IS
import json, os, signal, sys, time
os.chdir({folder!r})
words = [word for word in sys.argv[5:] if not word.startswith("observe.threads=")]
planned = json.load(open("planned.json"))[" ".join(words)]
with open("calls", "a") as calls:
    calls.write(planned["name"] + "\\n")
def stop(*_):
    with open("stopped", "a") as stopped:
        stopped.write(planned["name"] + "\\n")
    os._exit(130)
signal.signal(signal.SIGTERM, stop)
os.makedirs(planned["place"], exist_ok=True)
time.sleep(planned["seconds"])
if planned["fails"]:
    print("normlab train: no such thing")
    sys.exit(3)
with open(planned["place"] + "/record.json", "w") as file:
    file.write(planned["record"])
print("done")
"""


@dataclass
class StandIn:
    """The folder of a test, and the outcomes of its runs."""

    folder: Path
    planned: dict = field(default_factory=dict)

    def install(self, monkeypatch):
        """Run the program instead of the interpreter."""
        program = self.folder / "python"
        program.write_text(PROGRAM.format(python=sys.executable, folder=str(self.folder)))
        program.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(program))

    def plan(self, runs, of):
        """Plan runs; `of` returns a run's outcome, as keywords of `outcome`."""
        for run in studied.runs_of(runs):
            self.planned[" ".join(last_of_each_key(run.planned.overrides))] = outcome(
                run, **of(run.planned)
            )
        (self.folder / "planned.json").write_text(json.dumps(self.planned))

    def lines(self, name):
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []


def outcome(run, scores, *, status="finished", seconds=0.0, fails=False, code="abc"):
    """Return what the program does for a run."""
    machine = {"device": "CPU", "device_type": settled_device("auto")}
    made = changed(
        record(numerics=code, environment={"dirty": False, "commit": "c0ffee", **machine}),
        run_id=run_id(run.config),
        seed=run.planned.seed,
        config=run.config,
        outcome=Outcome(status, 100),
        scores={name: Score(value, True, 10, None) for name, value in scores.items()},
        weights={"last": 100},
        floors={"bleu": 3.0},
    )
    return {
        "name": f"{run.config['observe']['study']} {run.planned.name}",
        "place": str(run.folder),
        "record": made.to_json(),
        "seconds": seconds,
        "fails": fails,
    }
