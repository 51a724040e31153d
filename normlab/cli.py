"""The command line: runs a subcommand, and prints errors as one-line messages."""

import errno
import os
import re
import sys
from difflib import get_close_matches
from importlib import import_module

from normlab.commands import COMMANDS, DOES
from normlab.config.folders import include_folders, own_line
from normlab.errors import CRASHED, UserError


def main(argv: list[str] | None = None) -> int:
    """Run `normlab ARGV` and return its exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        return 0
    # Keep child processes, including those that launchers and libraries start, from importing
    # modules from the current folder.
    os.environ["PYTHONSAFEPATH"] = "1"
    name, *rest = arguments
    if name == "--version":
        from importlib.metadata import version

        print(version("normlab"))
        return 0
    from normlab.terminal import crash, print_error, printable_output

    if name not in DOES:
        print_error(f"{name!r:.80} is not a command; {_suggestion(name, rest)}")
        return 2
    command = import_module(f"normlab.commands.{name}")
    try:
        with printable_output():
            return command.main(include_folders(rest))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 141
    except Exception as error:
        message = _message(error)
        print_error(message or crash(error), by=f"normlab {name}")
        return 1 if message else CRASHED


def usage() -> str:
    """Return the help text of `normlab --help`."""
    lines = ["usage: normlab COMMAND ...    what does normalization do in a Transformer?"]
    for group, commands in COMMANDS.items():
        lines.append(f"{group}:")
        lines += [f"  {name:<9} {does}" for name, does in commands.items()]
    lines.append("normlab COMMAND --help describes a command; start with: normlab demo")
    return "\n".join(lines)


def _suggestion(name: str, rest: list[str]) -> str:
    """Return a suggestion of what to type instead of a command that does not exist."""
    if name == "help":
        known = [word for word in rest if word in DOES]
        return f"run normlab {' '.join([*known[:1], '--help'])}"
    near = get_close_matches(name, DOES, n=1)
    return f"did you mean {near[0]}?" if near else f"choose from {', '.join(DOES)}"


def _message(error: Exception) -> str | None:
    """Return the message for an error that the user can fix, or None for any other error."""
    if isinstance(error, UserError):
        return str(error)
    if type(error).__module__.startswith(("hydra.", "omegaconf.")):
        from normlab.config.error_messages import setting_error

        return str(setting_error(error))
    if isinstance(error, OSError) and not own_line(error):
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return f"{error}{'; make room, then run the same command again' if full else ''}"
    memory = re.search("out of memory|can't allocate memory", str(error))  # torch's messages
    if isinstance(error, RuntimeError) and memory:
        return f"{str(error).splitlines()[0]}; use a smaller model or batch"
    return None
