"""Archives from a stranger: tar archives of data and checkpoints, which are zip archives."""

import gzip
import io
import random
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from normlab.data.cache import MAX_BYTES, unpack
from normlab.train.checkpoint import load_checkpoint
from tests.faults.folders import in_time
from tests.faults.hostile import one_line
from tests.faults.tally import Tally

KIND = "hostile archives"
_NAMES = ("de-en/train.tags.de-en.de", "a", "de-en/" + "x" * 300, "ü\n\x1b[2J", "a/" * 60 + "b")
_OUTSIDE = ("../stolen", "/tmp/normlab-stolen", "de-en/../../stolen", "a/./../../stolen")
_LINKS = (tarfile.SYMTYPE, tarfile.LNKTYPE)
_SPECIAL = (tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE)


def _tar(*members: bytes) -> bytes:
    return gzip.compress(b"".join([*members, bytes(1024)]), 1)


def _member(name: str, kind: bytes = tarfile.REGTYPE, to: str = "", size: int = 0) -> bytes:
    """Return header and text of a member; where a size is given, it is claimed alone."""
    text = b"" if size or kind != tarfile.REGTYPE else b"text\n"
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size, info.mode = kind, to, size or len(text), 0o7777
    return info.tobuf(tarfile.GNU_FORMAT) + text + bytes(-len(text) % 512)


def _leaving(rng: random.Random) -> bytes:
    return _tar(_member(rng.choice(_NAMES)), _member(rng.choice(_OUTSIDE)))


def _linked(rng: random.Random) -> bytes:
    """Write through a link of the archive's own to a place outside."""
    to = rng.choice(("..", "../..", "/tmp", "/etc/passwd", "/dev/zero"))
    return _tar(_member("a", rng.choice(_LINKS), to), _member(rng.choice(("a/stolen", "a"))))


def _device(rng: random.Random) -> bytes:
    return _tar(_member("de-en/train.tags.de-en.de", rng.choice(_SPECIAL)))


def _bomb(rng: random.Random) -> bytes:
    """Say that a member is larger than any text, or be a gigabyte of nothing."""
    if rng.random() < 0.7:
        return _tar(_member("a", size=MAX_BYTES + rng.randrange(10**12)))
    return gzip.compress(bytes(rng.randrange(10**7, 10**8)), 1)


def _damaged(rng: random.Random) -> bytes:
    content = bytearray(_tar(*(_member(name) for name in _NAMES)))
    for _ in range(rng.randrange(1, 9)):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(content[: rng.randrange(1, len(content))] if rng.random() < 0.5 else content)


def _odd(rng: random.Random) -> bytes:
    """Hold odd names, the same name again and again, or a folder where the text should be."""
    names = rng.choices(_NAMES, k=rng.randrange(1, 40))
    kind = rng.choice((tarfile.REGTYPE, tarfile.DIRTYPE))
    return _tar(*(_member(name, kind) for name in names))


def _noise(rng: random.Random) -> bytes:
    return rng.randbytes(rng.randrange(4000))


def _zipped(rng: random.Random, checkpoint: bytes) -> bytes:
    """Change a checkpoint: a bomb, a path outside, another pickle, an entry twice, lost bytes."""
    how = rng.choice(("bomb", "outside", "pickle", "twice", "damaged"))
    source, content = zipfile.ZipFile(io.BytesIO(checkpoint)), io.BytesIO()
    with zipfile.ZipFile(content, "w") as target:
        for entry in source.infolist():
            data = source.read(entry)
            if how == "bomb" and entry.filename.endswith("/data/0"):
                target.writestr(entry.filename, bytes(3 * 10**8), zipfile.ZIP_DEFLATED)
                continue
            if how == "pickle" and entry.filename.endswith("data.pkl"):
                data = rng.choice((b"cos\nsystem\n(S'touch stolen'\ntR.", data[: len(data) // 2]))
            target.writestr(entry.filename, data)
            if how == "twice" and rng.random() < 0.2:
                target.writestr(entry.filename, rng.randbytes(9))
        if how == "outside":
            target.writestr("../../stolen", b"x")
    found = bytearray(content.getvalue())
    if how == "damaged":
        found[rng.randrange(len(found))] ^= 1
    return bytes(found)


TARS: tuple[Callable[[random.Random], bytes], ...]
TARS = (_leaving, _linked, _device, _bomb, _damaged, _odd, _noise)


def attack(tally: Tally, rng: random.Random, run: Path, work: Path, count: int) -> None:
    """Unpack `count` hostile archives, every fourth one a checkpoint made of that of a run."""
    checkpoint = (run / "checkpoints" / "last.pt").read_bytes()
    for number in range(count):
        root = work / "unpacked"
        folder = root / "within"
        folder.mkdir(parents=True)
        path = root / "archive"
        if number % 4 == 3:
            name = "checkpoint"
            path.write_bytes(_zipped(rng, checkpoint))
            act = lambda: load_checkpoint(path)  # noqa: B023, E731
        else:
            make = rng.choice(TARS)
            name = make.__name__
            path.write_bytes(make(rng))
            act = lambda: unpack(path, folder)  # noqa: B023, E731
        tally.count(KIND, f"{name} {number}", _problem(act, root))
        shutil.rmtree(root)


def _problem(act: Callable[[], object], root: Path) -> str | None:
    try:
        in_time(act)
    except Exception as error:
        if (problem := one_line(error)) is not None:
            return problem
    outside = [path for path in root.rglob("*") if "within" not in path.parts]
    outside += [path for path in (Path("/tmp/normlab-stolen"), Path("stolen")) if path.exists()]
    if [path.name for path in outside] != ["archive"]:
        return f"written outside: {outside}"
    odd = [path for path in root.rglob("*") if not (path.is_file() or path.is_dir())]
    leading = [path for path in root.rglob("*") if not path.resolve().is_relative_to(root)]
    return f"no file of text: {[*odd, *leading][:2]}" if odd or leading else None
