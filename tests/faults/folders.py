"""Run folders from a stranger: each file of a real one replaced by something hostile."""

import contextlib
import io
import json
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from normlab.cli import main
from tests.faults.hostile import changed, places
from tests.faults.tally import Tally

KIND = "hostile run folders"
SECONDS = 60  # of a machine that has other work
_MADE = (".lock", "inspect.json")  # what commands leave in a run's folder
_FILES = ("record.json", "config.yaml", "metrics.jsonl", "hypotheses.txt", "checkpoints/last.pt")
_COMMANDS: tuple[Callable[[Path, Path], list[str]], ...] = (
    lambda run, root: ["list", "runs", "--runs-dir", str(root)],
    lambda run, root: ["list", "runs", "--json", "--runs-dir", str(root)],
    lambda run, root: ["compare", str(root)],
)
# One of these a folder: they build the model.
_SLOW: tuple[Callable[[Path, Path], list[str]], ...] = (
    lambda run, root: ["eval", str(run)],
    lambda run, root: ["report", str(run), "--figures", "svg", "--out", str(root / ".plots")],
    lambda run, root: ["inspect", str(run), "--json"],
)


def _removed(path: Path, rng: random.Random) -> None:
    path.unlink()


def _folder(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path, rng: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def _loop(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.symlink_to(path.name)


def _device(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def _empty(path: Path, rng: random.Random) -> None:
    path.write_bytes(b"")


def _noise(path: Path, rng: random.Random) -> None:
    path.write_bytes(rng.randbytes(rng.randrange(1, 4000)))


def _cut(path: Path, rng: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(len(content))])


def _flipped(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(4):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(bytes(content))


def _nested(path: Path, rng: random.Random) -> None:
    depth = rng.choice((300, 900, 100_000))
    path.write_bytes(b'{"a":' * depth + b"1" + b"}" * depth + b"\n")


def _digits(path: Path, rng: random.Random) -> None:
    content = path.read_bytes()
    at = content.find(b": ") + 2
    path.write_bytes(content[:at] + b"9" * rng.choice((400, 5000)) + content[at:])


def _unlike(path: Path, rng: random.Random) -> None:
    """Replace one value, or take it away; in a checkpoint too."""
    if path.suffix == ".pt":
        import torch

        content = torch.load(path, weights_only=True)
        key = rng.choice(sorted(content))
        content[key] = rng.choice((None, [], {}, "x", 10**30, torch.zeros(3)))
        if rng.random() < 0.5:
            del content[key]
        torch.save(content, path)
    elif path.suffix == ".json":
        content = json.loads(path.read_bytes())
        place = rng.choice(list(places(content)))
        wrong: Any = rng.choice((None, [], {}, "\x1b[2J", -1, "nan", [[]], {"option": "os.system"}))
        path.write_text(json.dumps(changed(content, place, wrong, remove=rng.random() < 0.3)))
    else:
        _flipped(path, rng)


HARMS = (_removed, _folder, _pipe, _loop, _device, _empty, _noise, _cut, _flipped, _nested, _digits)
HARMS += (_unlike, _unlike, _unlike)


def attack(tally: Tally, rng: random.Random, run: Path, work: Path, count: int) -> None:
    """Harm `count` copies of a run, beside one that is whole, and read each by every command."""
    for number in range(count):
        root = work / f"stranger{number}"
        harmed, whole = root / "a" / "seed1", root / "b" / "seed2"
        shutil.copytree(run, harmed)
        shutil.copytree(run, whole)
        _give_seed(whole / "record.json", 2)
        harm, name = rng.choice(HARMS), rng.choice(_FILES)
        harm(harmed / name, rng)
        before = _state(root)
        commands = [*_COMMANDS, rng.choice(_SLOW)]
        argvs = [command(harmed, root) for command in commands]
        problems = [f"{argv[0]}: {said}" for argv, said in _carried_out(argvs)]
        if new := set(_state(root)) ^ set(before):
            problems.append(f"something was written into a run: {sorted(new)[:2]}")
        tally.count(KIND, f"{harm.__name__} {name}", "; ".join(problems) or None)
        shutil.rmtree(root)


def _give_seed(path: Path, seed: int) -> None:
    content = json.loads(path.read_bytes())
    content["seed"] = content["config"]["seed"] = seed
    path.write_text(json.dumps(content))


def _state(root: Path) -> list[tuple[str, int]]:
    own = (".plots", "eval.jsonl")  # what commands write on purpose
    paths = [path for path in root.rglob("*") if not set(own) & set(path.parts)]
    # The size of a folder is the file system's affair.
    sizes = ((path, 0 if path.is_dir() else path.lstat().st_size) for path in paths)
    return sorted((str(path), size) for path, size in sizes if path.name not in _MADE)


def _carried_out(argvs: list[list[str]]) -> Iterator[tuple[list[str], str]]:
    for argv in argvs:
        said, out = _ended(argv)
        if said is None and argv[0] in ("list", "compare") and "finished" not in out:
            said = "the run that is whole is not listed"
        if said is not None:
            yield argv, said


def _ended(argv: list[str]) -> tuple[str | None, str]:
    """Carry out a command in this process; return what is wrong, and what it printed."""
    out, said = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
            in_time(lambda: main(argv))
    except SystemExit:
        pass
    except BaseException as error:
        return f"{type(error).__name__}: {error}", out.getvalue()
    if "Traceback" in said.getvalue():
        return said.getvalue(), out.getvalue()
    if "\x1b[2J" in out.getvalue() + said.getvalue():
        return "a control character reached the terminal", out.getvalue()
    return None, out.getvalue()


def in_time(act: Callable[[], object]) -> None:
    """Do something; AssertionError where it takes longer than any command should."""
    former = signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(SECONDS)
    try:
        act()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, former)


def _too_long(number: int, frame: FrameType | None) -> None:
    raise AssertionError(f"more than {SECONDS} s")
