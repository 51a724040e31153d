"""Every command of README, tutorial and how-tos, typed word for word.

bash runs a page's blocks with stand-in programs on its PATH that record their arguments, so quotes,
loops and redirections are handled by bash itself. The real command then parses these arguments. A
command that trains is executed up to the start of its first run (in a sweep, Hydra composes the
first and the last run), and Hydra's parser reads its flags in every position where a user may type
them.
"""

import argparse
import os
import re
import subprocess
import tomllib
from functools import cache

import pytest
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.utils import get_args_parser

import normlab
import tests.bench.small  # noqa: F401, which puts scripts/ on the path
from normlab.cli import main
from normlab.commands import DOES
from normlab.commands import train as training
from normlab.commands._arguments import Parser
from normlab.config.compose import written_out
from normlab.config.registry import option_names
from normlab.config.run_config import to_dict
from normlab.records.store import run_id
from normlab.studies import hydra_sweep
from normlab.studies.load import load_study
from normlab.studies.process_pool import EndedRun
from tests.docs.pages import PAGES, ROOT, fenced
from tests.records.examples import record

from bench.__main__ import main as bench  # isort: skip

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
PROGRAMS = (
    *("normlab", "pip", "python", "bash", "git", "torchrun", "pytest", ".venv-ray/bin/normlab"),
    *("nvidia-cuda-mps-control", "wandb"),
)
# Launchers that run elsewhere: Ray in its own environment, Slurm on a cluster.
ELSEWHERE = ("hydra/launcher=", "hydra.launcher.", "+hydra.launcher.")
CHECKED = set()  # commands that another page also has


def called(page, folder):
    """Return the calls that bash makes for the blocks of a page, each as a list of words."""
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
    """Raised with the arguments of a command at the point where it would begin its work."""


@pytest.fixture
def only_parse(monkeypatch):
    for parser in (argparse.ArgumentParser, Parser):
        for name in ("parse_args", "parse_intermixed_args"):
            original = getattr(parser, name)

            def parse(self, *arguments, original=original):
                found = original(self, *arguments)
                if self.description == "Hydra":
                    return found
                raise Parsed(found)

            monkeypatch.setattr(parser, name, parse)


@cache
def compose(*overrides):
    normlab.compose(list(overrides))


@pytest.fixture
def begun(monkeypatch):
    """Return the runs that `normlab train` would start, by name."""
    runs = []

    def begin(config):
        runs.append(run_id(to_dict(config)))
        return record()

    def grid(_, cells):
        assert all(".sweeps" not in cell.folder.parts for cell in cells), "a run is inside .sweeps"
        runs.extend(str(cell.folder) for cell in cells)
        return 0

    def trial(plan, _):  # a search starts one run after the other
        grid(None, plan)
        return [EndedRun(plan[0], 0, "", 0.0)]

    def ends(*arguments, all_runs=BasicSweeper.split_arguments):  # the runs between are similar
        return [[runs[0], runs[-1]] for runs in all_runs(*arguments)]

    monkeypatch.setattr(BasicSweeper, "split_arguments", staticmethod(ends))
    monkeypatch.setattr(training, "train_and_summarize", begin)
    monkeypatch.setattr(training, "train_and_summarize", begin)
    monkeypatch.setattr(hydra_sweep.HydraRuns, "_run_grid", grid)
    monkeypatch.setattr(hydra_sweep, "RunsInOrder", list)
    monkeypatch.setattr(hydra_sweep, "run_all", trial)
    monkeypatch.setattr(hydra_sweep, "read_record", lambda folder: record())
    monkeypatch.setattr(hydra_sweep, "objective", lambda *_: 1.0)
    return runs


def orders(words):
    """Return the command's words with its flags first, last and in the middle."""
    flags = [word for word in words if word.startswith("-") or word == "job"]
    others = [word for word in words if word not in flags]
    half = len(others) // 2
    return [[*flags, *others], [*others[:half], *flags, *others[half:]], [*others, *flags]]


def train(words, begun):
    asked = [word for word in words if not word.startswith(ELSEWHERE)]
    asked = [re.sub(r"^(hydra\.sweeper\.n_trials=).*", r"\g<1>1", word) for word in asked]
    if not any(map(os.path.isfile, asked)):
        if tuple(asked) in CHECKED:
            return
        CHECKED.add(tuple(asked))
    assert main(["train", *asked]) == 0, asked
    assert begun or {"--cfg", "--help"} & {*asked}, asked
    begun.clear()
    if any(word.startswith("-") for word in asked):
        parsers = [get_args_parser() for _ in range(3)]
        arguments = [hydra_sweep.flags_first(written_out(order)) for order in orders(asked)]
        first, *rest = map(argparse.ArgumentParser.parse_args, parsers, arguments)
        assert all(namespace == first for namespace in rest)


def parsed(name, words):
    """Return a command's words and overrides; None if it printed its help."""
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


def check_normlab(words, begun):
    name, *rest = words
    assert name in DOES
    if name == "train":
        return train(rest, begun)
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


def check(words, begun):
    program, *rest = words
    match program:
        case "normlab" | ".venv-ray/bin/normlab":
            check_normlab(rest, begun)
        case "torchrun":
            check_normlab(rest[rest.index("normlab") + 1 :], begun)
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
            assert (ROOT / rest[-1]).is_dir() or rest[-1].startswith("--normlab-model=")
        case _:
            assert program in ("git", "nvidia-cuda-mps-control", "wandb")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_parses_and_its_config_composes(
    page, tmp_path, only_parse, begun, monkeypatch
):
    if page.name == "own_norm.md":
        configs = fenced(page.read_text(), "yaml")
        names = ("norm/peak", "study/peaks", "placement/twice")
        for name, text in zip(names, configs, strict=True):
            (tmp_path / "own" / name).parent.mkdir(parents=True)
            (tmp_path / "own" / f"{name}.yaml").write_text(text)
        modules = fenced(page.read_text(), "python")
        for name, text in zip(("peak", "twice"), modules, strict=True):
            (tmp_path / "own" / f"{name}.py").write_text(text)
        monkeypatch.setenv("NORMLAB_PATH", str(tmp_path / "own"))
    calls = called(page, tmp_path)
    assert bool(calls) == bool(fenced(page.read_text(), "bash"))
    monkeypatch.chdir(tmp_path)  # where the page's commands have written settings files
    for words in calls:
        check(words, begun)
