"""Weights & Biases: sends a copy of a run, or keeps it offline if there is no login or network.

The group consists of norm, placement, batch and the other axes of a sweep (`bn-pre-b8`), so that
W&B averages only over seeds. The job type is the study, `sweep` or `train`. The tags are norm,
placement, task, corpus, batch and scale. Rows are reduced to losses, headline scores and one number
per probe, unless the config asks for `layers`. The chosen options (`norm`, `placement`, ...) are
top-level config keys next to `batch` and `corpus`, so that W&B can group by norm. The config nodes
that these names replace are under `nodes`.

W&B must not disturb a run: it writes only in the run folder, prints nothing, and waits for the
server only as long as the config allows. W&B's step is the training step. The id is stored in the
run folder, so that a resumed run keeps it. Online, a resumed run sends the rows that W&B does not
have; offline, it writes all rows into a new file and deletes the older files.
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

from normlab.records.files import atomic_write
from normlab.records.labels import batch_label, corpus_label, norm_label, placement_label
from normlab.records.record import MAIN_SCORES, RunRecord, Score, is_probe_metric, plain
from normlab.records.store import METRICS_FILE, read_rows, series
from normlab.training.sinks import NO_SCORES, Notice, Row, RunInfo, Sink, first_line, merged

Mode = Literal["auto", "online", "offline", "disabled"]
CLOUD = "https://api.wandb.ai"  # netrc may still have logins from before W&B's cloud moved

_IN_GROUP = ("seed", "norm", "placement", "batch_size", "max_tokens", "accumulate")
_TAG, _NAME = 64, 128  # W&B's limits, in characters


class Login(NamedTuple):
    """The W&B server, and where its API key was found (None if there is no key)."""

    host: str
    source: str | None


def find_login() -> Login:
    """Find an API key where W&B looks (environment, netrc, settings file), without connecting."""
    import wandb  # imported here because the default server depends on the installed W&B version
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
    """Resolve `auto`.

    It stands for WANDB_MODE if that is disabled or offline, otherwise for online if there is a
    login, and for offline if there is none.
    """
    if mode != "auto":
        return mode
    if (wish := _wish()) is not None:
        return wish
    return "online" if login.source else "offline"


def _wish() -> Literal["offline", "disabled"] | None:
    """Return the mode in WANDB_MODE, or None if it is online or not set."""
    wish = os.environ.get("WANDB_MODE", "").lower()
    if wish == "disabled":
        return "disabled"
    return "offline" if wish in ("dryrun", "offline") else None


def reach(host: str, seconds: float) -> None:
    """Raise `OSError` if the server's port does not answer. Behind a proxy, nothing is checked."""
    url = urlsplit(host)
    name = url.hostname or ""
    if url.scheme in getproxies() and not proxy_bypass(name):
        return
    port = url.port or (80 if url.scheme == "http" else 443)
    socket.create_connection((name, port), timeout=seconds).close()


class Wandb(Sink):
    """Sends rows to W&B."""

    def __init__(
        self,
        *,
        project: str,
        entity: str | None,
        name: str | None,
        group: str | None,
        job_type: str | None,
        tags: Sequence[str],
        notes: str | None,
        mode: Mode,
        layers: bool,
        connect_seconds: float,
        finish_seconds: float,
    ) -> None:
        self._project, self._entity = project, entity
        self._name, self._tags, self._notes = name, tags, notes
        self._group, self._job_type = group, job_type
        self._sent_keys = None if layers else _Headlines()
        self._mode: Mode = mode
        self._connect_seconds, self._finish_seconds = connect_seconds, finish_seconds
        self._run: Any = None
        self._logged: set[str] = set()
        self._metrics = Path()
        self._sent = -1  # the last step that W&B already had when this process started

    def open(self, run: RunInfo) -> Notice | None:
        login = find_login()
        mode = resolve_mode(self._mode, login)
        if mode == "disabled":
            return None
        id_file = run.run_dir / "wandb" / "run_id"
        known = run.resumed_step > 0 and id_file.exists()
        run_id = id_file.read_text("utf-8").strip() if known else _new_id(id_file)
        older = [*run.run_dir.glob(f"wandb/offline-run-*-{run_id}")]
        why = "no login; run `wandb login`"
        if login.source or "offline" in (self._mode, _wish()):
            why = "as requested"
        if mode == "online" and login.source:  # without a login W&B would ask for one and wait
            try:
                reach(login.host, self._connect_seconds)
                self._run = self._start(run, run_id, "online")
                self._sent = self._run.starting_step - 1
            except Exception as error:
                why = first_line(error)
        if self._run is not None:
            address = f"W&B: {self._run.url}"
        else:
            self._run = self._start(run, run_id, "offline")
            self._sent = run.resumed_step if known and not older else -1
            sync = f"wandb sync {run.run_dir}/wandb/offline-*"
            address = f"W&B: kept offline ({why}); send it with {sync}"
        self._metrics = run.run_dir / METRICS_FILE
        rows = read_rows(self._metrics) if run.resumed_step and self._metrics.is_file() else []
        for row in rows:
            if row["step"] <= run.resumed_step:
                self.log(row)
        for folder in older if rows else ():  # their rows are now in the new file
            shutil.rmtree(folder)
        return Notice(address)

    def _start(self, run: RunInfo, run_id: str, mode: Literal["online", "offline"]) -> Any:
        with _surroundings(run.run_dir / "wandb"):
            import wandb

            try:
                wandb_run = wandb.init(
                    project=self._project,
                    entity=self._entity,
                    id=run_id,
                    name=_short(self._name or display_name(run), _NAME),
                    group=_short(self._group or group(run.choices, run.config), _NAME),
                    job_type=self._job_type or _study(run.config) or "train",
                    tags=[_short(tag) for tag in (*tags(run.choices, run.config), *self._tags)],
                    notes=self._notes,
                    config=dashboard_config(run, self._group),
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
                wandb.teardown()  # W&B's service would keep the id of the failed run
                raise
        wandb_run.define_metric("step", hidden=True)
        wandb_run.define_metric("valid/*", summary="min,max,last")
        return wandb_run

    def log(self, row: Row, scores: Mapping[str, Score] = NO_SCORES) -> None:
        if self._run is None:
            return
        values = merged(row, scores)
        if self._sent_keys is not None:
            values = self._sent_keys.of(values)
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
        """Return a record as a flat dict. A logged score is given by its range and last value."""
        outcome, budget = record.outcome, record.budget
        rows = read_rows(self._metrics) if self._metrics.is_file() else []
        stability: Mapping[str, Any] = record.stability
        scores: Mapping[str, Score] = record.scores
        if self._sent_keys is not None:
            stability, scores = map(self._sent_keys.of, (stability, scores))
        summary: dict[str, Any] = {**stability, "params": record.params}
        for name, score in scores.items():
            if finite := [value for _, value in series(rows, name) if math.isfinite(value)]:
                summary[name] = {"min": min(finite), "max": max(finite), "last": finite[-1]}
            elif name not in self._logged:
                summary[name] = score.value
        summary["outcome"] = outcome.status
        summary |= {f"outcome_{key}": getattr(outcome, key) for key in ("step", "reason", "layer")}
        timed = ("wall_seconds", "tokens", "tokens_per_second")
        return plain({**summary, **{key: getattr(budget, key) for key in timed}})


class _Headlines:
    """Selects losses, headline scores, training metrics and one number per probe."""

    def __init__(self) -> None:
        self._of_probe: dict[str, str] = {}

    def of(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the headline values in order.

        The headline value of a probe is its first metric for the whole model.
        """
        return {name: value for name, value in values.items() if self._is_one(name)}

    def _is_one(self, name: str) -> bool:
        first, *others = name.split("/")
        if is_probe_metric(name):
            return len(others) == 2 and self._of_probe.setdefault(others[0], name) == name
        if first == "valid" or first.startswith("test"):
            return len(others) == 1 and others[0] in MAIN_SCORES
        return True


class _Labels(NamedTuple):
    """The labels of a run. A label that does not apply is None."""

    norm: str | None
    placement: str | None
    task: str | None
    corpus: str | None
    batch: str | None
    scale: str | None

    @classmethod
    def of(cls, choices: Mapping[str, Any], config: Mapping[str, Any]) -> "_Labels":
        batch = batch_label(config)
        return cls(
            norm=norm_label(choices),
            placement=placement_label(choices, config),
            task=choices.get("task"),
            corpus=corpus_label(config),
            batch=None if batch == "-" else batch,
            scale=choices.get("scale"),
        )


def display_name(run: RunInfo) -> str:
    """Return the run's name, `mlm-brown-bn-pre-b32-0123456789-seed1` or `NAME-bn-pre-...`."""
    labels, name = _Labels.of(run.choices, run.config), run.config.get("observe", {}).get("name")
    begins = (name,) if name else (labels.task, labels.corpus)
    setting = (labels.norm, labels.placement, labels.batch)
    parts = (*begins, *setting, run.fingerprint, f"seed{run.config['seed']}")
    return "-".join(str(part).replace("/", "_") for part in parts if part is not None)


def tags(choices: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    """Return the labels that a run has (norm, placement, ..., scale), and the user's tags."""
    chosen = config.get("observe", {}).get("tags", ())
    return [
        str(tag) for tag in (*_Labels.of(choices, config), *chosen) if tag not in (None, "", "-")
    ]


def _short(label: str, most: int = _TAG) -> str:
    """Return a label cut to W&B's limit, which a label for many rules in `sites` can exceed."""
    return label if len(label) <= most else f"{label[: most - 1]}…"


def group(choices: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Return the group of a run in W&B: norm, placement and batch, such as `bn-pre-b8`."""
    labels = _Labels.of(choices, config)
    return "-".join(filter(None, (labels.norm, labels.placement, labels.batch)))


def groups(runs: Sequence[tuple[Mapping[str, Any], Sequence[str]]]) -> list[str]:
    """Return the group of each run of a sweep from its config and overrides.

    Axes other than norm, placement and batch are added, as in `bn-pre-b8 optim.lr=0.001`. Seeds
    share a group.
    """
    common = set(runs[0][1]).intersection(*(overrides for _, overrides in runs))
    keys: list[str] = []
    for config, overrides in runs:
        apart = [text for text in overrides if text not in common]
        more = [text for text in apart if text.partition("=")[0] not in _IN_GROUP]
        keys.append(" ".join([group(config["choices"], config), *more]))
    return keys


def _study(config: Mapping[str, Any]) -> str | None:
    return config.get("observe", {}).get("study")


def dashboard_config(run: RunInfo, setting: str | None = None) -> dict[str, Any]:
    """Return the config with the chosen options' names at the top level and their nodes in `nodes`.

    `batch`, `corpus` and `setting` (the group) are labels.
    """
    options = {key: value for key, value in run.choices.items() if value is not None}
    options["norm"], options["batch"] = norm_label(run.choices), batch_label(run.config)
    options["corpus"] = corpus_label(run.config) or options.get("task")
    options["setting"] = setting or group(run.choices, run.config)
    config = {key: value for key, value in run.config.items() if key != "choices"}
    nodes = {key: value for key, value in config.items() if key in options}
    return plain({**config, **options, "nodes": nodes, "fingerprint": run.fingerprint})


def _new_id(path: Path) -> str:
    """Create an id and write it to a file. `uuid` does not change the run's random numbers."""
    run_id = uuid.uuid4().hex[:12]
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(run_id + "\n")
    return run_id


@contextlib.contextmanager
def _surroundings(folder: Path) -> Iterator[None]:
    """Set the options that W&B reads only from the environment, unless the user has set them.

    Without them, W&B's service logs to the user's cache, its login prints, and its telemetry
    contacts the server when the process ends, which takes twenty seconds if no server answers.
    """
    variables = {
        "WANDB_CACHE_DIR": str(folder / "cache"),
        "WANDB_DATA_DIR": str(folder / "data"),
        "WANDB_SILENT": "true",
        "WANDB_ERROR_REPORTING": "false",
    }
    changed = {key: value for key, value in variables.items() if key not in os.environ}
    os.environ.update(changed)
    try:
        yield
    finally:
        for key in changed:
            del os.environ[key]
