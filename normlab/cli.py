"""The command line: finds the subcommand, and turns errors into one clear message.

Each subcommand is a file in `normlab/commands` with a one-line `HELP` and `main(argv)`; it is
imported only when it is called.
"""

import errno
import os
import sys
from importlib import import_module

from normlab.commands import names

_ROOM = "what was there is kept: make room, then start the same command again"
_FILE_THERE = "a file stands where a folder has to be: move it, or name another place"
_CURES = {
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EACCES: "what was there is kept: give yourself the right to it, or name another place",
    errno.EROFS: "nothing can be written there: name another place",
    errno.ENOTDIR: _FILE_THERE,
    errno.EEXIST: _FILE_THERE,
    errno.EIO: "the disk or its network fails: what was there is kept; look at it, or name another "
    "place, then start the same command again",
}


def main(argv: list[str] | None = None) -> int:
    """Run `normlab ARGV` and return its exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        return 0
    # Threads that wait for each other actively keep from the processor what they wait for: beside
    # other work two ran at a tenth of what they run at asleep (results/bench/terminal.md). OpenMP
    # reads this when torch is loaded; cells inherit it.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    name, *rest = arguments
    if name == "--version":
        from importlib.metadata import version

        print(version("normlab"))
        return 0
    if name not in names():
        print(f"normlab: no command {name!r:.80}; there are {', '.join(names())}", file=sys.stderr)
        return 2
    command = import_module(f"normlab.commands.{name}")
    from normlab.commands._terminal import printable_output

    try:
        with printable_output():
            return command.main(rest)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 141
    except Exception as error:
        message = _message(error)
        if message is None:
            raise
        from normlab.records.text import printable

        print(f"normlab {name}: {printable(message)}", file=sys.stderr)
        return 1


def usage() -> str:
    """Return the page that `normlab --help` prints."""
    from normlab.commands._help import listing

    does = {name: import_module(f"normlab.commands.{name}").HELP for name in names()}
    lines = [
        "usage: normlab COMMAND ...    what does normalization do in a Transformer?",
        "",
        *(listing(f"  {name:<12}", does[name].split()) for name in does),
        "",
        "normlab COMMAND --help describes a command; start with: normlab train norm=bn",
    ]
    return "\n".join(lines)


def _message(error: Exception) -> str | None:
    """Return the message of an error that is the user's to mend; None for any other."""
    if type(error).__module__.startswith(("hydra.", "omegaconf.")):
        from normlab.config import error_line

        return error_line(error)
    if isinstance(error, OSError):
        cure = _CURES.get(error.errno or 0)
        return f"{error}; {cure}" if cure else str(error)
    return str(error) if isinstance(error, ValueError) else None
