"""The runs of studies: their configs and folders, which have ended, whether data can be had."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normlab.commands._terminal import complain
from normlab.records.code import code_of, same_code
from normlab.records.store import RECORD_FILE, RunStore, read_record
from normlab.studies import Planned, Study
from normlab.sweep import INTERRUPTED

if TYPE_CHECKING:
    from normlab.records.record import RunRecord

_BUILT_IN = (
    *("normlab.data.toy.", "normlab.data.documents.builtin."),
    "normlab.data.pictures.digits.",
)


@dataclass(frozen=True)
class Run:
    """A run of a study: what is carried out, its config, and the folder in which it lies."""

    planned: Planned
    config: Mapping[str, Any]
    place: Path

    @property
    def made_anew(self) -> bool:
        """Tell whether it replaces a run that other code made."""
        return self.config["observe"]["other_code"] == "rerun"

    def record(self, then: str | None = None) -> "RunRecord | None":
        """Return its record, None where there is none or it is damaged.

        `then` is what is done about damage, which is said; None says nothing.
        """
        path = self.place / RECORD_FILE
        try:
            return read_record(path, mend=then or "") if path.is_file() else None
        except ValueError as error:
            if then is not None:
                complain(str(error))
            return None

    def has_ended(self, record: "RunRecord | None") -> bool:
        """Tell by its record whether it has ended; if it is made anew, whether by this code."""
        if record is None or record.outcome.status not in ("finished", "diverged"):
            return False
        return not self.made_anew or same_code(record.environment, code_of(record.config))


def runs_of(planned: Sequence[Planned]) -> list[Run]:
    """Compose every run, once for all seeds; finds a wrong value before any starts.

    Raises ValueError for two that would be one run, as when an override makes two rows the same.
    """
    known: dict[tuple[str, ...], dict[str, Any]] = {}
    found: dict[Path, Run] = {}
    for run in planned:
        others = tuple(override for override in run.overrides if override != f"seed={run.seed}")
        if others not in known:
            try:
                known[others] = composed(run)
            except ValueError as error:
                raise ValueError(f"{error} (first met at row {run.row})") from None
        config = {**known[others], "seed": run.seed}
        place = RunStore(config["runs_dir"]).run_dir(config)
        if place in found:
            twice = " and ".join(name_of(one) for one in (found[place].planned, run))
            raise ValueError(
                f"{twice} are the same run: leave out the overrides or seeds that make them so"
            )
        found[place] = Run(run, config, place)
    return list(found.values())


def name_of(run: Planned) -> str:
    return " ".join(part for part in (run.row, run.point, f"seed={run.seed}") if part)


def composed(run: Planned) -> dict[str, Any]:
    """Return the config of a run; ValueError for what is wrong with its overrides."""
    from normlab.config import compose, to_dict

    return to_dict(compose(run.overrides))


def data_problem(run: Run) -> str | None:
    """Prepare the data of a run, once for all that share it; return why they cannot be had."""
    task = str(run.config["choices"]["task"])
    overrides = [override for override in run.planned.overrides if not override.startswith("task=")]
    # In a process of its own, which gives back what torch and the text take.
    command = [sys.executable, "-m", "normlab", "data", task, *overrides, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode == 0:
        return None
    if done.returncode in (INTERRUPTED, -signal.SIGINT):
        raise KeyboardInterrupt
    lines = done.stderr.strip().splitlines() or [f"normlab data ended with {done.returncode}"]
    return lines[-1].removeprefix("normlab data: ")


def data_problems(runs: Iterable[Run]) -> str | None:
    """Return why the data of some runs cannot be had, each data asked for once."""
    asked: dict[str, Run] = {}
    for run in runs:
        task = run.config["task"]
        of = [run.config["choices"]["task"], run.config.get("data_dir")]
        of += [task.get(name) for name in ("corpus", "source")]
        asked.setdefault(json.dumps(of, sort_keys=True, default=str), run)
    return next((said for each in asked.values() if (said := data_problem(each))), None)


def what_instead(study: Study, scale: str, problem: str) -> str:
    """Say what a study needs whose data cannot be had, and at which scales it needs none."""
    lines = [
        f"the data of {study.name} at scale={scale} cannot be had: {problem}",
        f"  it needs {study.scale(scale).data}",
    ]
    lines += [
        f"  without any data: normlab reproduce {study.name} scale={other} ({size.data})"
        for other, size in study.scales.items()
        if other != scale and built_in(composed(study.planned(other)[0]))
    ]
    return "\n".join(lines)


def built_in(config: Mapping[str, Any]) -> bool:
    """Tell whether a run trains on data that every installation carries or generates."""
    corpus = config["task"].get("corpus") or config["task"].get("source") or {}
    return str(corpus.get("_target_")).startswith(_BUILT_IN)
