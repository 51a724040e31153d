"""Reads the files that W&B keeps of a run on disk: which run it is, its rows, whether it was sent.

Each process of a run writes `wandb/[offline-]run-<time>-<id>/run-<id>.wandb`, a log in LevelDB's
format behind a header of seven bytes: blocks of 32 KiB hold chunks of a checksum (4 bytes), a
length (2), a type (1: whole, 2: first, 3: middle, 4: last) and data; the data is a message of
W&B's. W&B has no Python reader of its own any more. A process that is killed leaves a file that
ends anywhere, often with nothing in it.
"""

import json
import os
import shutil
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from normlab.records.atomic import atomic_write

_HEADER, _BLOCK, _CHUNK = 7, 32 * 1024, 7
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_BEGINNING = b":W&B" + struct.pack("<HB", 0xBEE1, 0)


@dataclass(frozen=True)
class RunFile:
    """One `.wandb` file. `last_step` is -1 without rows; `size` (bytes) counts all of its folder.

    `group` is None where the file ends before it says which run it is; `ended` tells whether its
    process came to its end. `whole` bytes of it are whole messages. `address` is where W&B keeps
    the run, `ENTITY/PROJECT/ID`, without an entity where it is that of the login.
    """

    path: Path
    run_id: str
    group: str | None
    rows: int
    last_step: int
    size: int
    offline: bool
    ended: bool
    whole: int
    address: str = ""

    @property
    def begun(self) -> bool:
        """Tell whether W&B has begun to send it: it notes the step that the run had there then."""
        return self.path.with_name(self.path.name + ".syncstate").exists()

    @property
    def run_dir(self) -> Path:
        """Return the folder of the run that it is of."""
        return self.path.parents[2]

    @property
    def sent(self) -> bool:
        """Tell whether it has been sent, by the mark that `wandb sync` leaves and looks for."""
        return is_sent(self.path)


def find_run_files(place: Path) -> list[RunFile]:
    """Read all `.wandb` files below a folder, in the order of their paths, which is that of time.

    Raises `ValueError` naming a file that is not W&B's.
    """
    return [read_run_file(path) for path in sorted(place.rglob("*run-*/run-*.wandb"))]


def read_run_file(path: Path) -> RunFile:
    """Read a `.wandb` file as far as it goes; `ValueError` naming it where it is not one."""
    from google.protobuf.message import DecodeError
    from wandb.proto import wandb_internal_pb2

    pb: Any = wandb_internal_pb2  # whose classes are made when it is imported
    group: str | None = None
    address = ""
    steps: list[int] = []
    ended = False
    whole = 0
    for end, message in _messages(path):
        whole = end
        try:
            record = pb.Record.FromString(message)
        except DecodeError as error:
            raise ValueError(f"{path}: damaged, not a run of W&B ({error}); remove it") from None
        match record.WhichOneof("record_type"):
            case "run":
                group = record.run.run_group
                place = (record.run.entity, record.run.project, record.run.run_id)
                address = "/".join(part for part in place if part)
            case "history":
                steps += _steps(record.history)
            case "exit":
                ended = True
    return RunFile(
        path=path,
        run_id=path.stem.removeprefix("run-"),
        group=group,
        rows=len(steps),
        last_step=max(steps, default=-1),
        size=sum(file.stat().st_size for file in path.parent.rglob("*") if file.is_file()),
        offline=path.parent.name.startswith("offline-"),
        ended=ended,
        whole=whole,
        address=address,
    )


def _steps(history: Any) -> list[int]:
    return [
        int(json.loads(item.value_json))
        for item in history.item
        if "_step" in (item.key, *item.nested_key)
    ]


def messages(path: Path) -> Iterator[bytes]:
    """Yield the messages of a run file, up to its end or to where a kill has cut it off."""
    return (message for _, message in _messages(path))


def _messages(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the messages of a run file and where each ends in it."""
    data = path.read_bytes()
    if data and data[:4] != b":W&B":
        raise ValueError(f"{path}: not a run of W&B; remove it")
    at, parts = _HEADER, list[bytes]()
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
            yield at, b"".join(parts)
            parts = []


def trim(file: RunFile) -> None:
    """Take the piece of a message away with which a kill has left a file.

    W&B sends a file that ends in a piece, and then calls it a failure, each time anew.
    """
    if file.path.stat().st_size > file.whole:
        os.truncate(file.path, file.whole)


def copy_without(file: RunFile, folder: Path, *, until: int) -> Path:
    """Copy all of a run file's folder below another, without rows up to a step; return the file."""
    from wandb.proto import wandb_internal_pb2

    pb: Any = wandb_internal_pb2
    place = folder / str(len(list(folder.iterdir()))) / file.path.parent.name
    shutil.copytree(file.path.parent, place)
    kept = []
    for message in messages(file.path):
        record = pb.Record.FromString(message)
        rows = record.WhichOneof("record_type") == "history"
        if not rows or max(_steps(record.history), default=until + 1) > until:
            kept.append(message)
    path = place / file.path.name
    with atomic_write(path, "wb") as copy:
        copy.write(_log(kept))
    return path


def _log(messages: Sequence[bytes]) -> bytes:
    """Return a run file of messages."""
    result = bytearray(_BEGINNING)
    for message in messages:
        rest, first = message, True
        while first or rest:
            if (room := _BLOCK - len(result) % _BLOCK) < _CHUNK:
                result += bytes(room)
                room = _BLOCK
            part, rest = rest[: room - _CHUNK], rest[room - _CHUNK :]
            kind = (_FIRST if rest else _WHOLE) if first else (_MIDDLE if rest else _LAST)
            checksum = zlib.crc32(part, zlib.crc32(bytes([kind])))
            result += struct.pack("<IHB", checksum, len(part), kind) + part
            first = False
    return bytes(result)


def mark_sent(file: RunFile) -> None:
    """Leave the mark for which `wandb sync` skips a file."""
    _mark(file.path).touch()


def is_sent(path: Path) -> bool:
    """Tell whether a file has the mark of one that has been sent."""
    return _mark(path).exists()


def _mark(path: Path) -> Path:
    return path.with_name(path.name + ".synced")
