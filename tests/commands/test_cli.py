"""`normlab` itself: the page of commands, and what is said of a command that does not exist."""

from pathlib import Path

import pytest
from hydra.errors import MissingConfigException

from normlab import commands
from normlab.cli import main
from normlab.config.compose import error_line


def test_the_page_of_commands_fits_a_terminal(capsys):
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    listed = [line.split()[0] for line in lines if line.startswith("  ")]
    assert listed == [name for group in commands.COMMANDS.values() for name in group]
    assert len(listed) == 14


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["trian", "norm=bn"], "no command 'trian'; did you mean train?"),
        (["ls"], "did you mean list?"),
        (["help"], "type normlab --help"),
        (["help", "train"], "type normlab train --help"),
        (["qqqq"], "there are claims, compare"),
    ],
)
def test_another_command_gets_a_suggestion(argv, told, capsys):
    assert main(argv) == 2
    assert told in capsys.readouterr().err


def test_every_command_has_its_file():
    folder = Path(commands.__file__).parent
    assert all((folder / f"{name}.py").is_file() for name in commands.names())


@pytest.mark.parametrize(
    ("option", "package"),
    [("launcher=joblib", "hydra-joblib-launcher"), ("sweeper=optuna", "hydra-optuna-sweeper")],
)
def test_a_plugin_of_hydra_that_is_missing_is_named_by_its_own_package(option, package):
    kind, _, name = option.partition("=")
    missing = MissingConfigException("", missing_cfg_file=f"hydra/{kind}/{name}")
    assert f"pip install -c constraints.txt {package}" in error_line(missing)
    assert "normlab[" not in error_line(missing)
