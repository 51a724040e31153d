"""One write of a process that fails or kills it, whichever command it carries out."""

import builtins
import io
import os
import signal
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from normlab.records.store import PROGRESS_FILE

KILL = "kill"
_COUNTED = {4**power for power in range(12)}  # a checkpoint has hundreds of writes


@dataclass(frozen=True)
class Fault:
    """Lets the n-th write below a folder fail once, or kills there, and counts writes into a file.

    Writes are: opening a file to write, the 1st, 4th, 16th, ... `write` to it, `fsync`, a rename,
    a removal, making a folder. `act` is an errno or `kill`, which comes after half of a `write`.
    """

    root: Path
    number: int
    act: int | Literal["kill"]
    counted: Path

    def install(self) -> None:
        """Replace what writes in this process; processes forked from it count on by themselves."""
        _Counter(self).install()


class _Counter:
    def __init__(self, fault: Fault) -> None:
        self.fault, self.seen = fault, 0
        self.out = os.open(fault.counted, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self.open = builtins.open
        self.fsync, self.mkdir = os.fsync, os.mkdir

    def install(self) -> None:
        builtins.open = io.open = self.opened
        os.fsync = self.synced
        for name in ("replace", "rename", "mkdir", "unlink"):
            setattr(os, name, self.counting(getattr(os, name), last=name in ("replace", "rename")))

    def inside(self, path: Any) -> bool:
        """Tell whether a path is one whose writes count.

        Locks have no content, and a run goes on without the file that says how far it is.
        """
        named = isinstance(path, str | Path) and str(path).startswith(str(self.fault.root))
        return named and not str(path).endswith(".lock") and PROGRESS_FILE not in str(path)

    def count(self, path: Any, half: Any = None) -> None:
        if not self.inside(path):
            return
        self.seen += 1
        os.pwrite(self.out, f"{self.seen}\n".encode(), 0)
        if self.seen != self.fault.number:
            return
        if self.fault.act == KILL:
            if half is not None:
                half()
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            raise OSError(self.fault.act, os.strerror(self.fault.act), str(path))

    def counting(self, real: Any, *, last: bool) -> Any:
        def counted(*paths: Any, **named: Any) -> Any:
            made = real is not self.mkdir or not os.path.isdir(paths[0])
            # With a `dir_fd` it is a name within a folder that is being removed.
            if made and "dir_fd" not in named:
                self.count(paths[1 if last else 0])
            return real(*paths, **named)

        return counted

    def synced(self, descriptor: Any) -> None:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        if not stat.S_ISDIR(os.fstat(number).st_mode):  # of a folder it need not succeed
            self.count(str(self.fault.root / "fsync"))
        self.fsync(descriptor)

    def opened(self, path: Any, mode: str = "r", *rest: Any, **named: Any) -> Any:
        if not set(mode) & set("wax+"):
            return self.open(path, mode, *rest, **named)
        self.count(path)
        file = self.open(path, mode, *rest, **named)
        return _Counted(file, str(path), self) if self.inside(path) else file


class _Counted(io.IOBase):
    """A file whose writes are counted."""

    def __init__(self, file: Any, path: str, counter: _Counter) -> None:
        self._file, self._path, self._counter = file, path, counter
        self._writes = 0

    def write(self, content: Any) -> int:
        def half() -> None:
            self._file.write(content[: len(content) // 2])
            self._file.flush()

        self._writes += 1
        if self._writes in _COUNTED:
            self._counter.count(self._path, half)
        return self._file.write(content)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def close(self) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


for _name in ("flush", "fileno", "writelines", "tell", "seek", "writable", "readable"):
    setattr(_Counted, _name, lambda self, *a, _n=_name: getattr(self._file, _n)(*a))
