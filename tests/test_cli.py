"""The `normlab` command: its help, unknown commands, and one-line errors."""

import errno
import os
from pathlib import Path

import pytest
from hydra.errors import MissingConfigException

from normlab import commands
from normlab.cli import _message, main
from normlab.config.error_messages import setting_error


def test_the_list_of_commands_is_complete_and_fits_24_lines_of_80_columns(capsys):
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    listed = [line.split()[0] for line in lines if line.startswith("  ")]
    assert listed == [name for group in commands.COMMANDS.values() for name in group]
    assert len(listed) == 16
    assert all((Path(commands.__file__).parent / f"{name}.py").is_file() for name in listed)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["trian", "norm=bn"], "'trian' is not a command; did you mean train?"),
        (["help", "train"], "run normlab train --help"),
        (["qqqq"], "choose from articles, claims, compare"),
    ],
)
def test_an_unknown_command_gets_a_suggestion(argv, said, capsys):
    assert main(argv) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("code", "cure"), [(errno.ENOSPC, "; make room"), (errno.EACCES, "")])
def test_a_failed_write_is_a_one_line_error_with_the_file_and_advice(code, cure):
    said = _message(OSError(code, os.strerror(code), "runs/a/record.json"))
    assert said is not None and "\n" not in said
    assert f"{os.strerror(code)}: 'runs/a/record.json'{cure}" in said


def test_the_error_for_a_missing_hydra_plugin_says_which_package_to_install():
    for kind, name in (("launcher", "joblib"), ("sweeper", "optuna")):
        missing = MissingConfigException("", missing_cfg_file=f"hydra/{kind}/{name}")
        package = f"hydra-{name}-{kind}"
        assert f"pip install -c constraints.txt {package}" in str(setting_error(missing))


@pytest.mark.parametrize(
    "argv",
    [
        ["inspect", "--hf", ""],
        ["inspect", "--module", "a:b", "--inputs", ""],
        ["inspect", "norm=ln", "--only", ""],
        ["eval", "RUN", "--weights", ""],
        ["compare", "--baseline", ""],
        ["compare", "--data-dir", ""],
        ["swap", "--hf", "", "norm=dyt"],
        ["export", "--wandb", "--entity", ""],
    ],
)
def test_an_empty_argument_is_refused(argv, capsys):
    with pytest.raises(SystemExit):
        main(argv)
    said = "got an empty argument; is a shell variable unset?"
    assert said in " ".join(capsys.readouterr().err.split())
