"""Command lines that are wrong: each must end in one line that names what is wrong."""

import random
from collections.abc import Iterator

from normlab.cli import _message
from normlab.commands.list import keys
from normlab.config.compose import compose
from normlab.config.constraints import CONSTRAINTS
from normlab.config.registry import option_names, run_groups
from tests.faults.tally import Tally

KIND = "bad command lines"
_WRONG = (
    "nan",
    "-inf",
    "inf",
    "-1",
    "many",
    "true",
    "[]",
    "{}",
    "[[1]]",
    "1e999",
    "''",
    "x.y",
    "0x",
)
_NOT_NUMBERS = ("many", "[]", "{a:1}", "[[1]]", "x.y", "0x", "'a b'", "1_", "--1", "1e")
_GARBAGE = (
    "=",
    "=1",
    "a=b=",
    "norm==",
    "norm=[",
    "{",
    "}",
    "norm=}",
    "++",
    "~",
    "a b=1",
    "\x1b[2J=1",
)
_GARBAGE += (
    "norm=$",
    "${x}=1",
    "norm=${nothing}",
    "seed=${oc.env:HOME}",
    "@a=b",
    "norm@=ln",
    "é=1",
)
_CHARACTERS = (9, 27, 34, 39, 61, 91, 123, 0x202E, 8232, 65, 256)
_NODES = ("norm", "model", "optim", "schedule", "task", "placement", "task.corpus")


def attacks(rng: random.Random) -> Iterator[tuple[list[str], tuple[str, ...]]]:
    """Yield overrides that are wrong, without end, and words of which the message has one."""
    fixed = [key.name for key in keys() if "*" not in key.name]
    numbers = [key for key in CONSTRAINTS if _is_there(key)]
    groups = [
        group for group in run_groups() if group not in ("probe", "sink") and "/" not in group
    ]
    while True:
        kind = rng.randrange(8)
        if kind == 0:
            key, value = rng.choice(numbers), rng.choice(_NOT_NUMBERS)
            yield [f"{key}={value}"], (key, key.rpartition(".")[2], value)
        elif kind == 1:
            key, row = rng.choice([(key, CONSTRAINTS[key]) for key in numbers])
            wrong = ["nan", "-inf"] + ([] if row.infinite else ["inf"])
            wrong += [] if row.low is None else [str(row.low - 1 - rng.randrange(10**6))]
            wrong += [] if row.high is None else [str(int(row.high) + 1 + rng.randrange(10**6))]
            yield [f"{key}={rng.choice(wrong)}"], (key, key.rpartition(".")[2])
        elif kind == 2:
            key = _typo(rng, rng.choice(fixed))
            yield [f"{key}=1"], (key, key.rpartition(".")[2], key.partition(".")[0])
        elif kind == 3:
            group = rng.choice(groups)
            option = _typo(rng, rng.choice(option_names(group)))
            yield [f"{group}={option}"], (group, option)
        elif kind == 4:
            text = rng.choice(_GARBAGE)
            yield [text], (text, repr(text)[1:-1], *text.partition("=")[::2])
        elif kind == 5:
            node = rng.choice(_NODES)
            yield [f"+{node}.{_typo(rng, 'value')}x={rng.choice(_WRONG)}"], (node,)
        elif kind == 6:
            text = "".join(chr(rng.choice(_CHARACTERS)) for _ in range(9))
            yield [f"data_dir=[{text}"], ("data_dir",)
        else:
            key = rng.choice([key for key in numbers if CONSTRAINTS[key].whole])
            yield [f"{key}={'9' * rng.choice((25, 400, 5000))}"], (key, key.rpartition(".")[2])


def _is_there(key: str) -> bool:
    """Tell whether the default run has a key, so that its value and not the key is wrong."""
    from normlab.config.compose import to_dict

    node = _DEFAULT or _DEFAULT.update(to_dict(compose([]))) or _DEFAULT
    for part in key.split("."):
        if not isinstance(node, dict) or part not in node:
            return False
        node = node[part]
    return True


_DEFAULT: dict = {}


def _typo(rng: random.Random, name: str) -> str:
    """Return a name that is no key and no option."""
    place = rng.randrange(len(name) + 1)
    return f"{name[:place]}{rng.choice('qzxj')}q{name[place:]}"


def said_of(overrides: list[str]) -> tuple[str | None, Exception | None]:
    """Return the message of a command line, as the command would print it, and its error.

    None where the run composes; what a node cannot be built of is refused as a run would.
    """
    from normlab.config.compose import to_dict
    from normlab.train.build import check_nodes

    try:
        check_nodes(to_dict(compose(overrides)))
    except Exception as error:
        return _message(error), error
    return None, None


def attack(tally: Tally, rng: random.Random, count: int) -> None:
    """Try `count` command lines."""
    lines = attacks(rng)
    for _ in range(count):
        overrides, words = next(lines)
        tally.take(KIND, " ".join(overrides), lambda o=overrides, w=words: _problem(o, w))


def _problem(overrides: list[str], words: tuple[str, ...]) -> str | None:
    said, error = said_of(overrides)
    if error is None:
        return "composes"
    if said is None:
        return f"traceback of {type(error).__name__}: {error}"
    if "\n" in said:
        return f"more than one line: {said}"
    if not any(word and word in said for word in words):
        return f"names none of {words}: {said}"
    return None
