"""The W&B server: which one, whether there is a login, and a workspace there that compares norms.

W&B itself prompts for a missing login and waits long for a server that is down; the functions here
look first, without a prompt. A workspace groups runs by `GROUPING`, top-level config keys that the
W&B sink sets, so that the members of a group are its seeds.
"""

import configparser
import contextlib
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

Mode = Literal["auto", "online", "offline", "disabled"]
CLOUD = "https://api.wandb.ai"  # where logins were kept before W&B's cloud moved

GROUPING = ("task", "corpus", "scale", "batch", "norm", "placement")
_STEP = "step"
_LOSS = "valid/loss.min"
_COLUMNS = (*(f"config:{key}.value" for key in (*GROUPING, "seed")), "summary:test/loss")
SECTIONS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "Comparison by norm": {
        "bars": (_LOSS, "test/loss", "test/bleu", "test/mlm_accuracy", "stability/spikes/count"),
    },
    "Training": {
        "lines": ("train/loss", "valid/loss", "valid/bleu", "valid/mlm_accuracy", "train/lr"),
    },
    "Stability": {
        "log lines": ("train/grad_norm", "stability/updates/ratio"),
        "lines": ("stability/residual/growth", "stability/spikes/count"),
    },
    "Batch statistics": {
        "lines": (
            *("stability/tid/mean", "stability/tid/var"),
            *("stability/fluctuation/mean", "stability/fluctuation/var", "train/padding_share"),
        ),
    },
    "Throughput": {"lines": ("train/tokens_per_second", "time/seconds")},
}
"""The metrics of each section by the kind of panel: bars of the summary, lines by step."""


@dataclass(frozen=True)
class Login:
    """The W&B server and where its key was found, None without one."""

    host: str
    source: str | None


def find_login() -> Login:
    """Look for a key where W&B looks: environment, netrc, settings file; opens no connection."""
    import wandb  # its default server depends on its version
    from requests.utils import get_netrc_auth

    folder = Path(os.environ.get("WANDB_CONFIG_DIR") or Path.home() / ".config" / "wandb")
    parser = configparser.ConfigParser(interpolation=None)
    with contextlib.suppress(OSError, configparser.Error, UnicodeDecodeError):
        parser.read(folder.expanduser() / "settings", encoding="utf-8")
    settings = dict(parser["default"]) if parser.has_section("default") else {}
    default = wandb.Settings.model_fields["base_url"].default
    host = os.environ.get("WANDB_BASE_URL") or settings.get("base_url") or default
    if os.environ.get("WANDB_API_KEY"):
        return Login(host, "WANDB_API_KEY")
    if any(get_netrc_auth(url) for url in ((host, CLOUD) if host == default else (host,))):
        return Login(host, "netrc")
    return Login(host, "W&B settings file" if settings.get("api_key") else None)


def resolve_mode(mode: Mode, login: Login) -> Literal["online", "offline", "disabled"]:
    """Settle `auto`: the wish in WANDB_MODE, else online where a login exists, else offline."""
    if mode != "auto":
        return mode
    wish = os.environ.get("WANDB_MODE", "").lower()
    if wish in ("disabled", "dryrun", "offline"):
        return "disabled" if wish == "disabled" else "offline"
    return "online" if login.source else "offline"


def reach(host: str, seconds: float) -> None:
    """Raise `OSError` when nothing answers at the server's port; a proxy is trusted to reach it."""
    url = urlsplit(host)
    name = url.hostname or ""
    if url.scheme in getproxies() and not proxy_bypass(name):
        return
    port = url.port or (80 if url.scheme == "http" else 443)
    socket.create_connection((name, port), timeout=seconds).close()


def workspace(
    *, entity: str, project: str, name: str, where: Mapping[str, Sequence[object]]
) -> Any:
    """Return the `wandb_workspaces.workspaces.Workspace`, not saved yet.

    `where` maps config keys to the values that shown runs have. Raises `ValueError` where W&B's
    library for workspaces is not installed.
    """
    try:
        import wandb_workspaces.expr as expr
        import wandb_workspaces.workspaces as ws
    except ModuleNotFoundError:
        raise ValueError(
            "a workspace needs the package wandb-workspaces: "
            "pip install -c constraints.txt wandb-workspaces"
        ) from None
    sections = [
        ws.Section(
            name=title,
            panels=[_panel(kind, name) for kind, names in kinds.items() for name in names],
            is_open=True,
            panel_settings=ws.SectionPanelSettings(x_axis=_STEP),
        )
        for title, kinds in SECTIONS.items()
    ]
    return ws.Workspace(
        entity=entity,
        project=project,
        name=name,
        sections=sections,
        settings=ws.WorkspaceSettings(x_axis=_STEP, max_runs=100, ignore_outliers=False),
        runset_settings=ws.RunsetSettings(
            filters=[expr.Config(key).isin(list(values)) for key, values in where.items()],
            groupby=[expr.Config(key) for key in GROUPING],
            pinned_columns=["run:displayName", *_COLUMNS],
        ),
    )


def _panel(kind: str, metric: str) -> Any:
    """Draw the mean of a group, and the range of its members."""
    import wandb_workspaces.reports.v2 as wr

    how: dict[str, Any] = {"groupby_aggfunc": "mean", "groupby_rangefunc": "minmax"}
    if kind == "bars":
        return wr.BarPlot(title=metric, metrics=[metric], groupby=wr.Config("norm"), **how)
    log = True if kind == "log lines" else None
    return wr.LinePlot(title=metric, x=_STEP, y=[metric], log_y=log, **how)
