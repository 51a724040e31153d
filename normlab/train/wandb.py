"""Weights & Biases: sends a copy of a run, or keeps it offline without a login or a network.

The group is norm and placement (`bn-pre`), so that W&B compares norms in a sweep of batch sizes.
The job type is the study; the tags are norm, placement, task, corpus, batch and scale. The chosen
options (`norm`, `placement`, ...) are top-level config keys next to `batch` and `corpus`, so that
W&B can group by norm; the node that an option's name replaces is under `nodes`.

W&B must not disturb a run: it writes only in the run folder, prints nothing, and waits for the
server only as long as the config allows. W&B's step is the training step. The id is stored in the
run folder, so that a resumed run keeps it. Online, a resumed run sends the rows that W&B lacks;
offline, it writes all rows into a new file and deletes the older ones.
"""

import configparser
import contextlib
import math
import os
import shutil
import socket
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from normlab.errors import UserError
from normlab.records.files import atomic_write
from normlab.records.labels import batch_label, corpus_label, norm_label, placement_label
from normlab.records.record import RunRecord, Score, plain
from normlab.records.store import METRICS_FILE, read_rows, series
from normlab.train.sinks import NO_SCORES, Row, RunInfo, Sink, first_line, merged

Mode = Literal["auto", "online", "offline", "disabled"]
CLOUD = "https://api.wandb.ai"  # where netrc kept logins before W&B's cloud moved

GROUPING = ("task", "corpus", "scale", "batch", "norm", "placement")
_TAG, _NAME = 64, 128  # W&B's limits, in characters
_BARS = "Comparison by norm"
SECTIONS: Mapping[str, Sequence[str]] = {
    _BARS: ("valid/loss.min", "test/loss", "test/bleu", "test/mlm_accuracy"),
    "Training": ("train/loss", "valid/loss", "valid/bleu", "valid/mlm_accuracy", "train/lr"),
    "Stability": ("train/grad_norm", "stability/residual/growth", "stability/spikes/count"),
    "Batch statistics": ("stability/tid/mean", "stability/tid/var", "train/padding_share"),
    "Throughput": ("train/tokens_per_second", "time/seconds"),
}
"""The metrics in each section of a workspace: bar plots in the first, line plots in the others."""


class Login(NamedTuple):
    """The W&B server, and where an API key for it was found (None without a key)."""

    host: str
    source: str | None


def find_login() -> Login:
    """Find an API key where W&B looks (environment, netrc, settings file), without connecting."""
    import wandb  # its default server depends on its version
    from requests.utils import get_netrc_auth

    folder = Path(os.path.expanduser(os.environ.get("WANDB_CONFIG_DIR") or "~/.config/wandb"))
    parser = configparser.ConfigParser(interpolation=None)
    with contextlib.suppress(OSError, configparser.Error, UnicodeDecodeError):
        parser.read(folder / "settings", encoding="utf-8")
    settings = dict(parser["default"]) if parser.has_section("default") else {}
    default = wandb.Settings.model_fields["base_url"].default
    host = os.environ.get("WANDB_BASE_URL") or settings.get("base_url") or default
    if os.environ.get("WANDB_API_KEY"):
        return Login(host, "WANDB_API_KEY")
    if any(get_netrc_auth(url) for url in ((host, CLOUD) if host == default else (host,))):
        return Login(host, "netrc")
    return Login(host, "W&B settings file" if settings.get("api_key") else None)


def resolve_mode(mode: Mode, login: Login) -> Literal["online", "offline", "disabled"]:
    """Resolve `auto`: WANDB_MODE disabled or offline, else online with a login, else offline."""
    if mode != "auto":
        return mode
    wish = os.environ.get("WANDB_MODE", "").lower()
    if wish in ("disabled", "dryrun", "offline"):
        return "disabled" if wish == "disabled" else "offline"
    return "online" if login.source else "offline"


def reach(host: str, seconds: float) -> None:
    """Raise `OSError` if the server's port does not answer; behind a proxy, nothing is checked."""
    url = urlsplit(host)
    name = url.hostname or ""
    if url.scheme in getproxies() and not proxy_bypass(name):
        return
    port = url.port or (80 if url.scheme == "http" else 443)
    socket.create_connection((name, port), timeout=seconds).close()


def workspace(
    *, entity: str, project: str, name: str, where: Mapping[str, Sequence[object]]
) -> Any:
    """Return an unsaved `wandb_workspaces.workspaces.Workspace`.

    `where` maps config keys to the values of the runs to show. Raises `UserError` if the package
    `wandb-workspaces` is not installed.
    """
    try:
        import wandb_workspaces.expr as expr
        import wandb_workspaces.workspaces as ws
    except ModuleNotFoundError:
        cure = "pip install -c constraints.txt wandb-workspaces"
        raise UserError(f"a workspace needs the package wandb-workspaces: {cure}") from None
    sections = [
        ws.Section(
            name=title,
            panels=[_panel(metric, bars=title == _BARS) for metric in metrics],
            is_open=True,
        )
        for title, metrics in SECTIONS.items()
    ]
    return ws.Workspace(
        entity=entity,
        project=project,
        name=name,
        sections=sections,
        settings=ws.WorkspaceSettings(x_axis="step", max_runs=100),
        runset_settings=ws.RunsetSettings(
            filters=[expr.Config(key).isin(list(values)) for key, values in where.items()],
            groupby=[expr.Config(key) for key in GROUPING],
        ),
    )


def _panel(metric: str, *, bars: bool) -> Any:
    """Return a panel that shows the mean and the range of a metric per group."""
    import wandb_workspaces.reports.v2 as wr

    how: dict[str, Any] = {"groupby_aggfunc": "mean", "groupby_rangefunc": "minmax"}
    if bars:
        return wr.BarPlot(title=metric, metrics=[metric], groupby=wr.Config("norm"), **how)
    return wr.LinePlot(title=metric, x="step", y=[metric], **how)


class Wandb(Sink):
    """Sends rows to W&B."""

    def __init__(
        self,
        *,
        project: str,
        entity: str | None,
        name: str | None,
        tags: Sequence[str],
        notes: str | None,
        mode: Mode,
        connect_seconds: float,
        finish_seconds: float,
    ) -> None:
        self._project, self._entity = project, entity
        self._name, self._tags, self._notes = name, tags, notes
        self._mode: Mode = mode
        self._connect_seconds, self._finish_seconds = connect_seconds, finish_seconds
        self._run: Any = None
        self._logged: set[str] = set()
        self._metrics = Path()
        self._sent = -1  # the last step that W&B already had when this process started

    def open(self, run: RunInfo) -> str | None:
        login = find_login()
        mode = resolve_mode(self._mode, login)
        if mode == "disabled":
            return None
        id_file = run.run_dir / "wandb" / "run_id"
        known = run.resumed_step > 0 and id_file.exists()
        run_id = id_file.read_text("utf-8").strip() if known else _new_id(id_file)
        older = [*run.run_dir.glob(f"wandb/offline-run-*-{run_id}")]
        why = "as requested" if login.source else "no login, see `wandb login`"
        if mode == "online" and login.source:  # without a login W&B would ask for one and wait
            try:
                reach(login.host, self._connect_seconds)
                self._run = self._start(run, run_id, "online")
                self._sent = self._run.starting_step - 1
            except Exception as error:
                why = first_line(error)
        found = f"W&B: {self._run.url}" if self._run is not None else None
        if self._run is None:
            self._run = self._start(run, run_id, "offline")
            self._sent = run.resumed_step if known and not older else -1
            sync = f"wandb sync {run.run_dir}/wandb/offline-*"
            found = f"W&B: kept offline ({why}); to send it: {sync}"
        self._metrics = run.run_dir / METRICS_FILE
        rows = read_rows(self._metrics) if run.resumed_step and self._metrics.is_file() else []
        for row in rows:
            if row["step"] <= run.resumed_step:
                self.log(row)
        for folder in older if rows else ():  # their rows are now in the new file
            shutil.rmtree(folder)
        return found

    def _start(self, run: RunInfo, run_id: str, mode: Literal["online", "offline"]) -> Any:
        with _surroundings(run.run_dir / "wandb"):
            import wandb

            try:
                wandb_run = wandb.init(
                    project=self._project,
                    entity=self._entity,
                    id=run_id,
                    name=_short(self._name or display_name(run), _NAME),
                    group=_short(group(run.choices), _NAME),
                    job_type=run.config.get("observe", {}).get("study") or "train",
                    tags=[_short(tag) for tag in (*tags(run.choices, run.config), *self._tags)],
                    notes=self._notes,
                    config=dashboard_config(run),
                    dir=run.run_dir,
                    mode=mode,
                    resume="allow",
                    settings=wandb.Settings(
                        silent=True,
                        console="off",
                        init_timeout=self._connect_seconds,
                        finish_timeout=self._finish_seconds,
                        disable_job_creation=True,
                    ),
                )
            except Exception:
                wandb.teardown()  # its service would keep the id of the failed run
                raise
        wandb_run.define_metric("step", hidden=True)
        wandb_run.define_metric("valid/*", summary="min,max")
        return wandb_run

    def log(self, row: Row, scores: Mapping[str, Score] = NO_SCORES) -> None:
        if self._run is None:
            return
        values = merged(row, scores)
        self._logged |= values.keys()
        if values["step"] > self._sent:
            self._run.log(values, step=values["step"])

    def close(self, record: RunRecord | None) -> None:
        if self._run is None:
            return
        run, self._run = self._run, None
        done = record is not None and record.outcome.status in ("finished", "diverged")
        with contextlib.ExitStack() as last:  # finish even if an error occurs
            last.callback(run.finish, exit_code=0 if done else 1)
            if record is not None:
                last.callback(run.summary.update, self._summary(record))
                if self._logged:  # W&B delays the last row, which would overwrite the summary
                    last.callback(run.log, {}, commit=True)

    def _summary(self, record: RunRecord) -> dict[str, Any]:
        """Return a record as a flat dict; a logged score becomes its range over the whole run."""
        outcome, budget = record.outcome, record.budget
        rows = read_rows(self._metrics) if self._metrics.is_file() else []
        found: dict[str, Any] = {**record.stability, "params": record.params}
        for name, score in record.scores.items():
            if seen := [value for _, value in series(rows, name) if math.isfinite(value)]:
                found[name] = {"min": min(seen), "max": max(seen)}
            elif name not in self._logged:
                found[name] = score.value
        found["outcome"] = outcome.status
        found |= {f"outcome_{key}": getattr(outcome, key) for key in ("step", "reason", "layer")}
        timed = ("wall_seconds", "tokens", "tokens_per_second")
        return plain({**found, **{key: getattr(budget, key) for key in timed}})


def display_name(run: RunInfo) -> str:
    """Return the run's name: `mlm-brown-bn-pre-b32-0123456789-seed1`, or `NAME-bn-pre-...`."""
    norm, placement, task, corpus, batch, _ = _named(run.choices, run.config)
    begins = (given,) if (given := run.config.get("observe", {}).get("name")) else (task, corpus)
    parts = (*begins, norm, placement, batch, run.fingerprint, f"seed{run.config['seed']}")
    return "-".join(str(part).replace("/", "_") for part in parts if part is not None)


def tags(choices: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    """Return norm, placement, task, corpus, batch, scale and the run's own tags, if it has them."""
    own = config.get("observe", {}).get("tags", ())
    return [str(tag) for tag in (*_named(choices, config), *own) if tag not in (None, "", "-")]


def _short(label: str, most: int = _TAG) -> str:
    """Return a label, cut to W&B's limit: those of runs with many rules in `sites` exceed it."""
    return label if len(label) <= most else f"{label[: most - 1]}…"


def group(choices: Mapping[str, Any]) -> str:
    """Return what W&B groups runs by: norm and placement, such as `bn-pre`."""
    return "-".join(filter(None, (norm_label(choices), placement_label(choices, {}))))


def _named(choices: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[str | None, ...]:
    batch, placement = batch_label(config), placement_label(choices, config)
    task, corpus = choices.get("task"), corpus_label(config)
    batch = None if batch == "-" else batch
    return norm_label(choices), placement, task, corpus, batch, choices.get("scale")


def dashboard_config(run: RunInfo) -> dict[str, Any]:
    """Return the config with the chosen options' names at the top level, their nodes in `nodes`.

    `batch` and `corpus` are labels.
    """
    named = {key: value for key, value in run.choices.items() if value is not None}
    named["norm"], named["batch"] = norm_label(run.choices), batch_label(run.config)
    named["corpus"] = corpus_label(run.config) or named.get("task")
    config = {key: value for key, value in run.config.items() if key != "choices"}
    nodes = {key: value for key, value in config.items() if key in named}
    return plain({**config, **named, "nodes": nodes, "fingerprint": run.fingerprint})


def _new_id(path: Path) -> str:
    """Create an id and write it to a file; `uuid` does not change the run's random numbers."""
    run_id = uuid.uuid4().hex[:12]
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(run_id + "\n")
    return run_id


@contextlib.contextmanager
def _surroundings(folder: Path) -> Iterator[None]:
    """Set the options that W&B reads only from the environment, unless the user has set them.

    Otherwise its service logs to the user's cache, its login prints, and its telemetry contacts
    the server when the process ends, which costs twenty seconds if no server answers.
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
