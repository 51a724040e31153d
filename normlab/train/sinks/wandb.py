"""A copy of a run at Weights & Biases, or in offline files when there is no login or no network.

The group is the fingerprint (all seeds of an experiment), the job type the study, and tags are
norm, placement, task, corpus, batch and scale. The chosen options (`norm`, `placement`, ...) are
top-level config keys next to `batch` and `corpus`, so that W&B's own grouping compares norms; the
node that an option's name replaces is under `nodes`. The summary of each score keeps its best.

W&B must cost a run nothing: it writes only in the run folder, prints nothing, and waits for the
server only as long as the config says. `wandb sync` sends offline files. The id is kept in the run
folder, so a resumed run keeps its id, and two people who run the same experiment do not write into
each other's run.

W&B's own step is the training step. A run resumed online sends the rows that W&B lacks. A run
resumed offline writes all rows into the new file and marks the older files as sent, because a kill
may have cut them off.
"""

import contextlib
import math
import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from normlab.records.files import atomic_write
from normlab.records.labels import batch_label, corpus_label, norm_label, placement_label
from normlab.records.record import RunRecord, Score, plain
from normlab.records.store import METRICS_FILE, read_rows, series
from normlab.train.sinks.base import NO_SCORES, Row, RunInfo, Sink, first_line, merged
from normlab.train.sinks.wandb_server import Mode, find_login, reach, resolve_mode


class Wandb(Sink):
    """Send rows to W&B."""

    def __init__(
        self,
        *,
        project: str,
        entity: str | None,
        mode: Mode,
        connect_seconds: float,
        finish_seconds: float,
    ) -> None:
        self._project, self._entity = project, entity
        self._mode: Mode = mode
        self._connect_seconds, self._finish_seconds = connect_seconds, finish_seconds
        self._run: Any = None
        self._rows: list[Mapping[str, Any]] = []
        self._scores: set[str] = set()
        self._sent = -1  # the last step that W&B had when this process began

    def open(self, run: RunInfo) -> str | None:
        login = find_login()
        mode = resolve_mode(self._mode, login)
        if mode == "disabled":
            return None
        self._rows = [*_rows_before(run)]
        id_file = run.run_dir / "wandb" / "run_id"
        known = run.resumed_step > 0 and id_file.exists()
        run_id = id_file.read_text("utf-8").strip() if known else _new_id(id_file)
        unsent = _unsent(run.run_dir, run_id)
        why = "as asked for" if login.source else "no login, see `wandb login`"
        found = None
        if mode == "online" and login.source:  # without a login W&B would ask for one and wait
            try:
                reach(login.host, self._connect_seconds)
                self._run = self._start(run, run_id, "online")
            except Exception as error:
                why = f"{type(error).__name__}: {first_line(error)}"
            else:
                self._sent = self._run.starting_step - 1
                found = f"W&B: {self._run.url}"
        if found is None:
            self._run = self._start(run, run_id, "offline")
            self._sent = run.resumed_step if known and not unsent else -1
            found = (
                f"W&B: kept offline ({why}); to send it: wandb sync {run.run_dir}/wandb/offline-*"
            )
        for row in self._rows:
            self._send(row)
        for path in unsent if self._rows else ():  # this process has taken its rows over
            _sent_mark(path).touch()
        return found

    def _send(self, row: Mapping[str, Any]) -> None:
        if row["step"] > self._sent:
            self._run.log(dict(row), step=row["step"])

    def _start(self, run: RunInfo, run_id: str, mode: Literal["online", "offline"]) -> Any:
        with _surroundings(run.run_dir / "wandb"):
            import wandb

            try:
                wandb_run = wandb.init(
                    project=self._project,
                    entity=self._entity,
                    id=run_id,
                    name=display_name(run),
                    group=run.fingerprint,
                    job_type=run.config.get("observe", {}).get("study") or "train",
                    tags=tags(run.choices, run.config),
                    config=dashboard_config(run),
                    dir=run.run_dir,
                    mode=mode,
                    resume="allow",
                    settings=self._settings(wandb.Settings),
                )
            except Exception:
                wandb.teardown()  # its service holds on to the id of a run that could not start
                raise
        wandb_run.define_metric("step", hidden=True)
        wandb_run.define_metric("*", step_metric="step")
        return wandb_run

    def _settings(self, settings: Any) -> Any:
        wanted = {
            "silent": True,
            "console": "off",
            "init_timeout": self._connect_seconds,
            "finish_timeout": self._finish_seconds,
            "disable_job_creation": True,
        }
        # finish_timeout is younger than the oldest release that otherwise serves.
        return settings(**{k: v for k, v in wanted.items() if k in settings.model_fields})

    def log(self, row: Row, scores: Mapping[str, Score] = NO_SCORES) -> None:
        if self._run is None:
            return
        for name, score in scores.items():
            if name not in self._scores:
                self._run.define_metric(name, step_metric="step", summary=_best_key(score))
        self._scores |= scores.keys()
        self._rows.append(merged(row, scores))
        self._send(self._rows[-1])

    def close(self, record: RunRecord | None) -> None:
        if self._run is None:
            return
        run, self._run = self._run, None
        done = record is not None and record.outcome.status in ("finished", "diverged")
        with contextlib.ExitStack() as last:  # an error must not cost a run its end
            last.callback(run.finish, exit_code=0 if done else 1)
            if record is not None:
                last.callback(run.summary.update, self._summary(record))
                if self._rows:  # W&B holds the last one back, and would write it over the summary
                    last.callback(run.log, {}, commit=True)

    def _summary(self, record: RunRecord) -> dict[str, Any]:
        """Flatten a record; a score seen in training keeps its best, also from before a resume."""
        scores: dict[str, Any] = {}
        for name, score in record.scores.items():
            seen = [value for _, value in series(self._rows, name) if math.isfinite(value)]
            best = max if score.higher_is_better else min
            value = best([score.value, *seen]) if math.isfinite(score.value) else score.value
            scores[name] = {_best_key(score): value} if name in self._scores or seen else value
        outcome, budget = record.outcome, record.budget
        return plain(
            {
                **scores,
                **record.stability,
                "outcome": outcome.status,
                "outcome_step": outcome.step,
                "outcome_reason": outcome.reason,
                "outcome_layer": outcome.layer,
                "wall_seconds": budget.wall_seconds,
                "tokens": budget.tokens,
                "tokens_per_second": budget.tokens_per_second,
                "params": record.params,
            }
        )


def _rows_before(run: RunInfo) -> list[dict[str, Any]]:
    """Return the rows before a resume, as far as the run's own file has them."""
    path = run.run_dir / METRICS_FILE
    if run.resumed_step == 0 or not path.is_file():
        return []
    return [row for row in read_rows(path) if row["step"] <= run.resumed_step]


def _best_key(score: Score) -> Literal["max", "min"]:
    return "max" if score.higher_is_better else "min"


def display_name(run: RunInfo) -> str:
    """Return the run's name with its corpus and batch: `mlm-brown-bn-pre-b32-0123456789-seed1`."""
    corpus, batch = corpus_label(run.config), batch_label(run.config)
    norm, placement = norm_label(run.choices), placement_label(run.choices, run.config)
    where = (run.choices["task"], corpus, norm, placement, None if batch == "-" else batch)
    parts = (*where, run.fingerprint, f"seed{run.config['seed']}")
    return "-".join(str(part).replace("/", "_") for part in parts if part is not None)


def tags(choices: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    """Name a run by norm, placement, task, corpus, batch and scale, without those it has not."""
    task, scale = choices.get("task"), choices.get("scale")
    placement, batch = placement_label(choices, config), batch_label(config)
    found = (norm_label(choices), placement, task, corpus_label(config), batch, scale)
    return [str(tag) for tag in found if tag not in (None, "", "-")]


def dashboard_config(run: RunInfo) -> dict[str, Any]:
    """Return the config with the chosen options' names at its top, their nodes below `nodes`.

    `batch` and `corpus` are labels.
    """
    named = {key: value for key, value in run.choices.items() if value is not None}
    named["norm"], named["batch"] = norm_label(run.choices), batch_label(run.config)
    named["corpus"] = corpus_label(run.config) or named.get("task")
    config = {key: value for key, value in run.config.items() if key != "choices"}
    nodes = {key: value for key, value in config.items() if key in named}
    return plain({**config, **named, "nodes": nodes, "fingerprint": run.fingerprint})


def _new_id(path: Path) -> str:
    """Make an id and write it into a file; `uuid` leaves random states alone."""
    run_id = uuid.uuid4().hex[:12]
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(run_id + "\n")
    return run_id


def _unsent(run_dir: Path, run_id: str) -> list[Path]:
    """Return the offline files of a run that W&B does not have."""
    files = run_dir.glob(f"wandb/offline-run-*-{run_id}/run-*.wandb")
    return [path for path in files if not _sent_mark(path).exists()]


def _sent_mark(path: Path) -> Path:
    """Return the file for which `wandb sync` skips an offline file."""
    return path.with_name(path.name + ".synced")


@contextlib.contextmanager
def _surroundings(folder: Path) -> Iterator[None]:
    """Set what W&B reads only from the environment, and only where the user has not.

    Its service logs to the user's cache, its login prints, and its own usage telemetry asks the
    server at the end of the process, which costs twenty seconds when no server answers.
    """
    wanted = {
        "WANDB_CACHE_DIR": str(folder / "cache"),
        "WANDB_DATA_DIR": str(folder / "data"),
        "WANDB_SILENT": "true",
        "WANDB_ERROR_REPORTING": "false",
    }
    changed = {key: value for key, value in wanted.items() if key not in os.environ}
    os.environ.update(changed)
    try:
        yield
    finally:
        for key in changed:
            del os.environ[key]
