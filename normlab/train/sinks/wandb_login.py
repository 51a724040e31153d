"""Decides which W&B server is meant, whether there is a login for it, and whether it answers.

W&B itself asks at a terminal for a login that is missing, and waits long for a server that is not
there; these look first, without a connection and without a question.
"""

import configparser
import contextlib
import netrc
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

Mode = Literal["auto", "online", "offline", "disabled"]
CLOUD = "https://api.wandb.ai"  # the name that logins of before W&B's cloud moved are kept under


@dataclass(frozen=True)
class Login:
    """The W&B server and where its key was found, None without one."""

    host: str
    source: str | None


def find_login() -> Login:
    """Look for a key where W&B looks: environment, netrc, settings file; opens no connection."""
    settings = _settings_file()
    default = default_host()
    host = os.environ.get("WANDB_BASE_URL") or settings.get("base_url") or default
    for name in ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE"):
        if os.environ.get(name):
            return Login(host, name)
    netrc_path = Path(os.environ.get("NETRC") or Path.home() / ".netrc").expanduser()
    with contextlib.suppress(OSError, netrc.NetrcParseError):
        entries = netrc.netrc(netrc_path)
        for url in (host, CLOUD) if host == default else (host,):
            entry = entries.authenticators(urlsplit(url).netloc)
            if entry and entry[2]:
                return Login(host, str(netrc_path))
    return Login(host, "W&B settings file" if settings.get("api_key") else None)


def default_host() -> str:
    """Return the server that the installed W&B talks to unless told otherwise."""
    import wandb  # which server that is depends on its version

    return wandb.Settings.model_fields["base_url"].default


def _settings_file() -> dict[str, str]:
    folder = Path(os.environ.get("WANDB_CONFIG_DIR") or Path.home() / ".config" / "wandb")
    parser = configparser.ConfigParser(interpolation=None)
    with contextlib.suppress(OSError, configparser.Error, UnicodeDecodeError):
        parser.read(folder.expanduser() / "settings", encoding="utf-8")
    return dict(parser["default"]) if parser.has_section("default") else {}


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
