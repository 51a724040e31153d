"""Answers that follow from the code alone, kept beside the data that are prepared once.

What was said is said again at once, without torch, as long as no file that it follows from and no
package has changed. Where nothing can be kept it is worked out each time.
"""

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO, cast

_COLORS = ("NO_COLOR", "FORCE_COLOR", "TERM", "COLORTERM")
_OLDEST = 200  # answers are kept


def remembered(
    name: str, argv: Sequence[str], follows_from: Sequence[Path], say: Callable[[], int]
) -> int:
    """Print what `say` prints to the standard output, from memory where it is there.

    Only answers of status 0 are kept, a file each: by arguments, terminal, code and packages.
    """
    from normlab.data.cache import cache_key, cache_root

    files = sorted(path for place in follows_from for path in place.rglob("*") if path.is_file())
    terminal = sys.stdout.isatty()
    key = cache_key(
        {
            "argv": list(argv),
            "files": [(str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in files],
            "torch": metadata.version("torch"),
            "terminal": [terminal, shutil.get_terminal_size().columns if terminal else 0],
            "colors": {
                k: os.environ.get(k) for k in ("NO_COLOR", "FORCE_COLOR", "TERM", "COLORTERM")
            },
        }
    )
    path = cache_root() / "answers" / f"{name}-{key}.txt"
    with contextlib.suppress(OSError, UnicodeDecodeError):
        said = path.read_text("utf-8")
        print(said, end="")
        return 0
    heard = _Heard(sys.stdout)
    sys.stdout = cast("TextIO", heard)
    try:
        status = say()
    finally:
        sys.stdout = heard.stream
    if status == 0:
        with contextlib.suppress(OSError):
            _keep(path, "".join(heard.said))
    return status


def _keep(path: Path, text: str) -> None:
    from normlab.records.atomic import atomic_write

    path.parent.mkdir(parents=True, exist_ok=True)
    for old in sorted(path.parent.iterdir(), key=lambda each: each.stat().st_mtime)[:-_OLDEST]:
        old.unlink(missing_ok=True)
    with atomic_write(path) as file:
        file.write(text)


class _Heard:
    """A stream that keeps what is written to it."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.said = stream, list[str]()

    def write(self, text: str) -> int:
        self.said.append(text)
        return self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
