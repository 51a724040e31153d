"""Read back an offline run file of W&B: a header of seven bytes, and a log of LevelDB."""

import json
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wandb.proto import wandb_internal_pb2 as pb

_HEADER, _BLOCK, _CHUNK = 7, 32 * 1024, 7
_WHOLE, _LAST = 1, 4


@dataclass
class OfflineRun:
    """What an offline file says of a run."""

    run: Any = None
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    exit_code: int | None = None


def read(path: Path, *, patience: float = 20.0) -> OfflineRun:
    """Read config, history, summary and exit code of a run that has ended.

    W&B's service may write the last of it a moment after `finish` has returned.
    """
    deadline = time.monotonic() + patience
    while (result := read_so_far(path)).exit_code is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert result.exit_code is not None, f"{path} has no end"
    return result


def read_so_far(path: Path) -> OfflineRun:
    """Read what a file has, also without its end."""
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


def messages(path: Path) -> Iterator[bytes]:
    """Yield the messages of a run file, up to its end or to where a kill has cut it off.

    Blocks of 32 KiB hold chunks: checksum (4 bytes), length (2), kind (1: whole, 2: first, 3:
    middle, 4: last), data.
    """
    data, at, parts = path.read_bytes(), _HEADER, list[bytes]()
    while at + _CHUNK <= len(data):
        if (room := _BLOCK - at % _BLOCK) < _CHUNK:
            at += room
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        end = at + _CHUNK + length
        if kind == 0 or end > len(data):
            return
        parts.append(data[at + _CHUNK : end])
        at = end
        if kind in (_WHOLE, _LAST):
            yield b"".join(parts)
            parts = []
