"""The tab key knows commands, groups, their options, sites and top-level keys, in real shells."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from normlab import commands, registry
from normlab.commands.completion import candidates, main

ROOT = Path(__file__).resolve().parents[2]


def test_commands_come_first():
    assert candidates([""]) == commands.names()
    assert candidates([]) == commands.names()
    assert candidates(["comp"]) == ["compare", "completion"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["train", "norm=l"], ["norm=ln"]),
        (["train", "norm=ln,rm"], ["norm=ln,rms"]),
        (["train", "seed=2", "norm@decoder_norm=l"], ["norm@decoder_norm=ln"]),
        (["train", "norm@dec"], ["norm@decoder_norm="]),
        (["train", "probe=[spikes,pad"], ["probe=[spikes,padding"]),
        (["train", "batch_s"], ["batch_size="]),
        (["train", "budget.st"], ["budget.steps="]),
        (["train", "+placem"], ["+placement="]),
        (["train", "seed="], []),
        (["train", "zzz"], []),
        (["ls", "pla"], ["placement"]),
        (["ls", "run"], ["runs"]),
        (["data", "to"], ["toy"]),
        (["completion", ""], ["bash", "zsh"]),
        (["compare", "norm"], []),
        (["check", ""], ["norm"]),
        (["check", "norm", "ln", "rm"], ["rms"]),
        (["new", "norm", ""], []),
        (["compare", "--w"], ["--where"]),
        (["ls", "--"], ["--help", "--json", "--runs-dir"]),
        (["nothing", "--"], []),
    ],
)
def test_what_an_argument_can_become(words, expected):
    assert candidates(words) == expected


def test_options_are_those_of_the_folder():
    names = [f"norm={name}" for name in registry.option_names("norm")]
    assert candidates(["train", "norm="]) == names and names


def test_an_unknown_shell_names_the_known_ones(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["fish"])
    assert caught.value.code != 0
    assert "bash" in capsys.readouterr().err


@pytest.fixture
def command_on_path(tmp_path):
    """Put a `normlab` on the path that has this one subcommand."""
    script = tmp_path / "normlab"
    script.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from normlab.commands.completion import main\nsys.exit(main(sys.argv[2:]))\n"
    )
    script.chmod(0o755)
    (tmp_path / "runs").mkdir()
    return {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}


def run_bash(environment, line, breaks=None):
    words = f'COMP_WORDBREAKS="{breaks}"' if breaks is not None else ""
    test = f"""
compopt() {{ echo "compopt $1 $2"; }}
source <(normlab completion bash)
{words}
COMP_LINE='{line}' COMP_POINT={len(line)}
_normlab
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(
        ["bash", "-c", test], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("normlab compl", ["completion"]),
        ("normlab train norm=l", ["ln"]),
        ("normlab train norm=ln,rm", ["ln,rms"]),
        ("normlab train norm@decoder_norm=l", ["ln"]),
        ("normlab train norm@dec", ["compopt -o nospace", "@decoder_norm="]),
        ("normlab train batch_s", ["compopt -o nospace", "batch_size="]),
        ("normlab train probe=[spikes,pad", ["[spikes,padding"]),
        ("normlab ls ", [*registry.groups(), "runs"]),
    ],
)
def test_bash_replaces_what_follows_its_word_break(command_on_path, line, expected):
    assert run_bash(command_on_path, line) == expected


def test_bash_without_word_breaks_gets_whole_words(command_on_path):
    assert run_bash(command_on_path, "normlab train norm=l", breaks=" ") == ["norm=ln"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["comple"], "-- completion"),
        (["train", "norm=l"], "-- norm=ln"),
        (["train", "batch_s"], "-S  -- batch_size="),
        (["translate", "norm=zzz"], "files"),
    ],
)
def test_zsh_adds_whole_words(command_on_path, words, expected):
    test = f"""
compdef() {{ :; }}
compadd() {{ [[ $@[-1] == -- ]] || echo "$@"; }}
_files() {{ echo files; }}
source <(normlab completion zsh)
words=(normlab {" ".join(words)}) CURRENT={len(words) + 1} PREFIX='{words[-1]}'
_normlab
"""
    done = subprocess.run(
        ["zsh", "-fc", test], env=command_on_path, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert done.stdout.split("\n")[:-1] == [expected]


def test_it_is_quick(command_on_path):
    took = []
    for _ in range(3):
        before = time.perf_counter()
        asked = ["normlab", "completion", "candidates", "--", "train", "norm="]
        subprocess.run(asked, env=command_on_path, check=True, capture_output=True)
        took.append(time.perf_counter() - before)
    assert min(took) < 0.3
