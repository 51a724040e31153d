"""The subcommands: a file each, found by its name, so that adding one is adding a file.

A file gives `HELP`, one line, and `main(argv) -> int`, the exit code. Importing it is cheap: what
is heavy is imported inside `main`. Files whose names begin with `_` are shared by commands.
"""

import pkgutil


def names() -> list[str]:
    """List the subcommands in alphabetical order, without importing them."""
    return sorted(item.name for item in pkgutil.iter_modules(__path__) if item.name[0] != "_")
