"""Read back an offline run file of W&B.

The file is a log in LevelDB's format behind a header of seven bytes: blocks of 32 KiB hold chunks
of a checksum (4 bytes), a length (2), a type (1: whole, 2: first, 3: middle, 4: last) and data.
W&B has no Python reader of its own any more.
"""

import json
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wandb.proto import wandb_internal_pb2 as pb

_HEADER, _BLOCK, _CHUNK = 7, 32 * 1024, 7


@dataclass
class OfflineRun:
    """What an offline file says of a run."""

    run: Any = None
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    exit_code: int | None = None


def messages(path: Path) -> Iterator[bytes]:
    """Yield the messages of a run file."""
    data = path.read_bytes()
    assert data[:4] in (b"", b":W&B"), data[:4]
    at, parts = _HEADER, []
    while at + _CHUNK <= len(data):
        if (room := _BLOCK - at % _BLOCK) < _CHUNK:
            at += room
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        if kind == 0:
            return
        parts.append(data[at + _CHUNK : at + _CHUNK + length])
        at += _CHUNK + length
        if kind in (1, 4):
            yield b"".join(parts)
            parts = []


def read(path: Path, *, patience: float = 20.0) -> OfflineRun:
    """Read config, history, summary and exit code of a run that has ended.

    W&B's service may write the last of it a moment after `finish` has returned.
    """
    deadline = time.monotonic() + patience
    while (result := _read(path)).exit_code is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert result.exit_code is not None, f"{path} has no end"
    return result


def _read(path: Path) -> OfflineRun:
    result = OfflineRun()
    for message in messages(path):
        record = pb.Record.FromString(message)
        match record.WhichOneof("record_type"):
            case "run":
                result.run = record.run
                result.config |= {
                    item.key: json.loads(item.value_json) for item in record.run.config.update
                }
            case "history":
                result.history.append(_items(record.history.item))
            case "summary":
                for keys, value in _keyed(record.summary.update):
                    node = result.summary
                    for key in keys[:-1]:
                        if not isinstance(node.get(key), dict):
                            node[key] = {}
                        node = node[key]
                    node[keys[-1]] = value
            case "exit":
                result.exit_code = record.exit.exit_code
    return result


def _items(items: Any) -> dict[str, Any]:
    return {"/".join(keys): value for keys, value in _keyed(items)}


def _keyed(items: Any) -> Iterator[tuple[list[str], Any]]:
    for item in items:
        yield list(item.nested_key) or [item.key], json.loads(item.value_json)
