"""Fixtures for W&B tests, as a pytest plugin: no login, a local server, a sink."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from normlab.training.wandb import Wandb
from tests.training.wandb_server import KEY, Server, serving


@pytest.fixture
def nobody_is_logged_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the logins, settings and proxies of the user who runs the tests."""
    # The address at which a W&B process listens. It is not restored, because that process may have
    # ended by then.
    os.environ.pop("WANDB_SERVICE", None)
    for name in list(os.environ):
        if name.startswith("WANDB_") or name.lower().endswith("_proxy") or name == "NETRC":
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def wandb_server(nobody_is_logged_in: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Return a server that this process is logged in to."""
    import wandb

    with serving() as state:
        monkeypatch.setenv("WANDB_BASE_URL", state.url)
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        wandb.teardown()  # it remembers the server of an earlier run
        yield state
        wandb.teardown()


def sink(mode: str = "auto", *, seconds: float = 2.0, layers: bool = False) -> Wandb:
    """Return a sink that waits this long for the server."""
    return Wandb(
        project="normlab",
        entity=None,
        name=None,
        group=None,
        job_type=None,
        tags=(),
        notes=None,
        layers=layers,
        mode=mode,  # type: ignore[arg-type]
        connect_seconds=seconds,
        finish_seconds=seconds,
    )


def files(folder: Path) -> list[Path]:
    """Return the offline files of the runs in a folder, oldest first."""
    return sorted(folder.glob("wandb/offline-run-*/run-*.wandb"))


class Offline(NamedTuple):
    """The contents of an offline file: the run's fields, its last logged values, its summary."""

    run: Any
    logged: dict[str, Any]
    summary: dict[str, Any]


def read(file: Path) -> Offline:
    """Return the contents of a run's offline file, as `wandb sync` would send them."""
    from wandb.proto.wandb_internal_pb2 import Record  # pyright: ignore[reportAttributeAccessIssue]

    run, logged, summary = None, {}, {}
    for content in _records(file.read_bytes()):
        record = Record.FromString(content)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run = record.run
        items = {"history": record.history.item, "summary": record.summary.update}.get(kind, ())
        into = logged if kind == "history" else summary
        into |= {
            item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items
        }
    return Offline(run, logged, summary)


def _records(content: bytes, header: int = 7, block: int = 32_768) -> Iterator[bytes]:
    """Yield the records of a log of LevelDB: checksum, length and type precede each fragment."""
    at, record = header, b""
    while at + header <= len(content):
        if (room := block - at % block) < header:
            at += room
            continue
        size, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        record += content[at + header : at + header + size]
        at += header + size
        if kind in (1, 4):  # whole, or the last fragment
            yield record
            record = b""
