"""Every command of README, tutorial and how-tos, typed word for word.

bash reads a page's blocks with stand-ins on its PATH that write down how they were called, so that
quotes, loops and redirections are bash's own. What it called is then parsed by the command itself,
and composed where it trains.
"""

import argparse
import subprocess
import tomllib
from functools import cache

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep

import normlab
import tests.bench.small  # noqa: F401, which puts scripts/ on the path
from normlab.cli import main
from normlab.commands import names
from normlab.config.registry import option_names
from normlab.studies.load import load_study
from tests.docs.pages import PAGES, ROOT, fenced

from bench.__main__ import main as bench  # isort: skip

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
PROGRAMS = (
    *("normlab", "pip", "python", "bash", "git", "torchrun", "pytest", ".venv-ray/bin/normlab"),
    *("nvidia-cuda-mps-control", "wandb"),
)
FLAGS = ("-m", "--cfg", "job", "--help", "hydra/launcher=ray")  # Ray is installed elsewhere


def called(page, folder):
    """Return what bash calls when it is given the blocks of a page, a list of words a call."""
    log = folder / "called"
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "activate").touch()
    (folder / "normlab").symlink_to(".")  # what git clone would make
    (folder / "in.de").touch()
    log.touch()
    for name in PROGRAMS:
        stand_in = folder / name if "/" in name else folder / "bin" / name
        stand_in.parent.mkdir(parents=True, exist_ok=True)
        stand_in.write_text(f"#!/bin/sh\nprintf '%s\\0' '{name}' \"$@\" '' >> '{log}'\n")
        stand_in.chmod(0o755)
    code = "set -eu\n" + "\n".join(fenced(page.read_text(), "bash"))
    run = subprocess.run(
        ["/bin/bash", "-c", code],
        cwd=folder,
        env={"PATH": f"{folder / 'bin'}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    calls = log.read_text().removesuffix("\0\0").split("\0\0")
    return [call.split("\0") for call in calls if call]


class Parsed(BaseException):
    """The arguments of a command that would begin its work now."""


@pytest.fixture
def only_parse(monkeypatch):
    for name in ("parse_args", "parse_intermixed_args"):
        original = getattr(argparse.ArgumentParser, name)

        def parse(self, *arguments, original=original):
            raise Parsed(original(self, *arguments))

        monkeypatch.setattr(argparse.ArgumentParser, name, parse)


@cache
def compose(*overrides):
    normlab.compose(list(overrides))


def one_of_a_sweep(override):
    """Return the first value that an override of a sweep stands for."""
    if "=" not in override:  # a file of settings
        return override
    parsed = OverridesParser.create().parse_override(override)
    if not parsed.is_sweep_override():
        return override
    value = parsed.value()
    first = (
        value.start if isinstance(value, IntervalSweep) else next(parsed.sweep_string_iterator())
    )
    return f"{parsed.key_or_group}={first}"


def train(words):
    given = [word for word in words if word not in FLAGS]
    compose(*(one_of_a_sweep(word) if "-m" in words else word for word in given))


def parsed(name, words):
    """Return the words and overrides of a command, None for a page of help that it printed."""
    try:
        status = main([name, *words])
    except SystemExit as end:
        status = end.code
    except Parsed as found:
        values = vars(found.args[0]).values()
        lists = [value if isinstance(value, list) else [value] for value in values]
        return [word for listed in lists for word in listed if isinstance(word, str)]
    assert status == 0, (name, words)
    return None


def check_normlab(words):
    name, *rest = words
    assert name in names()
    if name == "train":
        return train(rest)
    found = parsed(name, rest)
    if found is None:
        return None
    overrides = [word for word in found if "=" in word and not word.startswith("normlab ")]
    if name == "study" and rest[0] in ("run", "plan", "tune"):
        scale = next((w.partition("=")[2] for w in overrides if w.startswith("scale=")), "smoke")
        studies = [word for word in rest if word in option_names("study")]
        assert studies and all(scale in load_study(study).scales for study in studies)
    elif name in ("doctor", "inspect") and "RUN" not in rest:
        compose(*overrides)
    return None


def check(words):
    program, *rest = words
    match program:
        case "normlab" | ".venv-ray/bin/normlab":
            check_normlab(rest)
        case "torchrun":
            check_normlab(rest[rest.index("normlab") + 1 :])
        case "bash":
            assert (ROOT / rest[0]).is_file()
            assert not rest[0].endswith("environment.sh") or set(rest[1:]) <= set(EXTRAS)
        case "pip":
            assert rest[:4] == ["install", "-c", "constraints.txt", "-e"]
            assert rest[4].strip(".[]") in EXTRAS
        case "python":
            assert rest[0] == "scripts/bench"
            with pytest.raises(Parsed):
                bench(rest[1:])
        case "pytest":
            assert (ROOT / rest[-1]).is_dir()
        case _:
            assert program in ("git", "nvidia-cuda-mps-control", "wandb")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_are_understood(page, tmp_path, only_parse, monkeypatch):
    if page.name == "own_norm.md":
        configs = fenced(page.read_text(), "yaml")
        for name, text in zip(("norm/peak", "study/peaks"), configs, strict=True):
            (tmp_path / "own" / name).parent.mkdir(parents=True)
            (tmp_path / "own" / f"{name}.yaml").write_text(text)
        monkeypatch.setenv("NORMLAB_PATH", str(tmp_path / "own"))
    calls = called(page, tmp_path)
    assert bool(calls) == bool(fenced(page.read_text(), "bash"))
    monkeypatch.chdir(tmp_path)  # where the page's commands have written files of settings
    for words in calls:
        check(words)
