"""`normlab norm new|check|card NAME`: begin a norm of your own, check it, make its card."""

import argparse
import keyword
import os
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from normlab.commands._arguments import HelpFormatter
from normlab.commands._terminal import at_work

HELP = "begin a norm of your own, check it against the norm contract, make its report card"

_EXAMPLES = """examples:
  normlab norm new peak         write normlab/norms/peak.py and configs/norm/peak.yaml
  normlab norm check peak       does it keep the contract of all norms? seconds
  normlab norm card peak        the report card: fixed questions and short runs, minutes

normlab norm check --help and normlab norm card --help say more. The new files train at once, as a
norm that divides each token by its root mean square; they say what to change. An installed package
keeps both files inside itself; the command says where.
"""
_CHECK = """examples:
  normlab norm check mine       a norm of your own (normlab norm new mine), in seconds
  normlab norm check ln bn      several

One line per check: ok, violated or does not apply, and what was seen. The exit status is 1 if a
check is violated. normlab norm card mine compares it with other norms.
"""
_INDENT = 28
_STATUS = {True: "ok", False: "violated", None: "does not apply"}
_ACTIONS = ("new", "check", "card")
_LONGEST = 40  # characters: names of runs have it in them
_WORDS = ("null", "true", "false", "nan", "inf", "yes", "no", "on", "off")  # of YAML

_MODULE = '''"""{title}: one sentence on what it does, and its source (authors, year, equation)."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from normlab.norms.base import Axis, Norm, Stream
from normlab.norms.pool import widen


class {title}(Norm):
    """Each token over its root mean square: put the formula of the paper here."""

    # What statistics are taken over, of the names in `Axis`; frozenset() for a norm without any.
    pools: ClassVar[frozenset[Axis]] = frozenset({{"feature"}})

    def __init__(self, dim: int, *, eps: float) -> None:
        # A value of the config for each keyword; scale and shift say which of both are learned.
        super().__init__(dim, scale=True, shift=True)
        self.eps = eps

    def forward(self, x: Float[Tensor, "B P D"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Return `x` normalized; `stream.real(x)` tells tokens from padding."""
        wide, weight, bias = widen(x, self.weight, self.bias)  # float32, also under bf16
        square = wide.square().mean(-1, keepdim=True)
        return (wide * (square + self.eps).rsqrt() * weight + bias).to(x.dtype)
'''
_CONFIG = """# normlab train norm={name}
# {title}: one sentence on what it does (authors, year). Pools over feature.
_target_: normlab.norms.{name}.{title}
eps: 1.0e-5  # what it is; a new name gets its range in normlab/config/constraints.py
"""


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    result = argparse.ArgumentParser(
        prog="normlab norm",
        description=HELP[0].upper() + HELP[1:] + ".",
        epilog=_EXAMPLES,
        formatter_class=HelpFormatter,
    )
    result.add_argument("action", choices=_ACTIONS, help="what to do")
    result.add_argument("name", metavar="NAME", help="small letters, digits and _")
    return result


def _check_parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="normlab norm check",
        description="Check a norm against the norm contract: axes, padding, gradients, ...",
        epilog=_CHECK,
        formatter_class=HelpFormatter,
    )
    result.add_argument("names", nargs="+", metavar="NAME", help="options of configs/norm")
    return result


def main(argv: list[str]) -> int:
    """Write both files of a new norm, or neither; check norms; make a card."""
    action, *rest = argv or [""]
    if action == "check":
        return _check_all(_check_parser().parse_args(rest).names)
    if action == "card":
        from normlab.commands.card import main as card

        named = bool(rest) and "=" not in rest[0] and not rest[0].startswith("-")
        return card([f"norm={rest[0]}", *rest[1:]] if named else rest)
    return _new(parser().parse_args(argv).name)


def _new(name: str) -> int:
    module, config = places(name)
    title = title_of(name)
    files = {module: _MODULE.format(title=title), config: _CONFIG.format(name=name, title=title)}
    _check(name, files)
    _write(files)
    print(
        f"wrote {_shown(module)}    what it pools over, its values, its formula\n"
        f"      {_shown(config)}    its values, and a sentence for normlab list norms\n"
        "Both work as they are. Put your norm in their place, then:\n"
        f"  normlab norm check {name}                the norm contract, in seconds\n"
        f"  normlab train norm={name} scale=smoke    a run of a minute\n"
        f"  normlab norm card {name} scale=smoke     the report card, small; without scale whole"
    )
    return 0


def places(name: str) -> tuple[Path, Path]:
    """Return the paths of the file and the config of a norm."""
    from normlab.config.registry import CONFIG_DIR

    package = Path(__file__).resolve().parents[1]
    return package / "norms" / f"{name}.py", CONFIG_DIR / "norm" / f"{name}.yaml"


def title_of(name: str) -> str:
    """Return the name of the class: `PeakNorm` of `peak` and of `peak_norm`."""
    words = [word for word in name.split("_") if word]
    if len(words) > 1 and words[-1] == "norm":
        words.pop()
    return "".join(word[0].upper() + word[1:] for word in words) + "Norm"


def _check(name: str, files: Mapping[Path, str]) -> None:
    """Raise ValueError where a norm cannot have this name, or the files have no place."""
    from normlab.config.registry import option_names

    taken = {*_WORDS, *keyword.kwlist}
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or len(name) > _LONGEST or name in taken:
        raise ValueError(
            f"{name!r:.60} cannot be a norm: give small letters, digits and _, a letter "
            f"first, at most {_LONGEST}, and no word of Python or YAML{_better(name, taken)}"
        )
    # A file that is there as it would be written was left by this command when it was killed.
    others = [path for path, text in files.items() if path.exists() and not _holds(path, text)]
    if others and name in option_names("norm"):
        raise ValueError(f"there is a norm {name}, in {_shown(others[-1])}: choose another name")
    if others:
        raise ValueError(f"{_shown(others[0])} exists: choose another name")
    for path in files:
        if not os.access(path.parent, os.W_OK):
            raise ValueError(
                f"{path.parent} cannot be written: install normlab into an environment of your own"
            )


def _holds(path: Path, text: str) -> bool:
    return path.is_file() and path.read_bytes() == text.encode()


def _better(name: str, taken: set[str]) -> str:
    """Return ` Such as ...` for a name that needs little to be one."""
    parts = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    near = re.sub(r"[^a-z0-9]+", "_", parts.lower()).strip("_0123456789")[:_LONGEST]
    return f", such as {near}" if near and near != name and near not in taken else ""


def _write(files: dict[Path, str]) -> None:
    from normlab.records.atomic import atomic_write

    due = {path: text for path, text in files.items() if not path.exists()}
    try:
        for path, text in due.items():
            with atomic_write(path) as file:
                file.write(text)
    except BaseException:
        for path in due:
            path.unlink(missing_ok=True)
        raise


def _shown(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _check_all(names: Sequence[str]) -> int:
    """Check norms, one line per check; return 1 if one is violated."""
    check_names(names)
    violations = [_verdicts(name) for name in names]
    return 1 if any(violations) else 0


def check_names(names: Sequence[str]) -> None:
    """Raise ValueError naming what is no norm, before anything is loaded."""
    from normlab.config.registry import option_names
    from normlab.config.suggest import of_option

    there = option_names("norm")
    for name in names:
        if name not in there:
            near = of_option("norm", name, there)
            raise ValueError(f"no norm {name!r:.60}: there are {', '.join(there)}.{near}")


def _verdicts(name: str) -> int:
    """Print the verdicts on a norm, and return how many checks it violates."""
    with at_work("loading"):
        from normlab.inspect.contract import examine
        from normlab.inspect.subject import BareNorm
        from normlab.train.build import make_norm

    start = time.monotonic()
    subject = BareNorm(partial(make_norm, name))
    norm = subject.new()
    print(f"norm {name}: {type(norm).__module__}.{type(norm).__name__}")
    counts = dict.fromkeys(_STATUS.values(), 0)
    for question, found in examine(subject):
        status = _STATUS[found.holds]
        counts[status] += 1
        _line(question, status, found.why_not or found.answer)
    said = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    print(f"{sum(counts.values())} checks in {time.monotonic() - start:.1f} s: {said}")
    for key in _without_range(name):
        where = "normlab/config/constraints.py"
        _line("note", "", f"norm.{key} has no row in {where}: any number is taken")
    return counts["violated"]


def _without_range(name: str) -> list[str]:
    """Return the numbers of a norm's config that the table of constraints has no row for."""
    import yaml

    from normlab.config.constraints import constraint_of
    from normlab.config.registry import CONFIG_DIR

    node = yaml.safe_load((CONFIG_DIR / "norm" / f"{name}.yaml").read_text(encoding="utf-8"))
    numbers = [key for key, value in node.items() if type(value) in (int, float)]
    return [key for key in numbers if constraint_of(f"norm.{key}") is None]


def _line(check: str, status: str, text: str) -> None:
    """Print a line; on a terminal what is too long goes on below its column."""
    head = f"  {check:<11}{status:<15}"
    if sys.stdout.isatty():
        width = max(_INDENT + 20, shutil.get_terminal_size().columns)
        text = textwrap.fill(
            text, width, initial_indent=" " * _INDENT, subsequent_indent=" " * _INDENT
        ).lstrip()
    print(f"{head}{text}", flush=True)
