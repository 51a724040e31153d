"""`normlab bench SUBJECT`: measure speed. A subject a file, found by its name like a command."""

import pkgutil
from importlib import import_module

from normlab.commands._help import listing

HELP = "measure speed: of training, decoding, norms, probes, data, start-up, records"

_ABOUT = """\
Each subject describes its options: normlab bench train --help. Contenders take turns in one run,
and what counts is their ratio; a busy second is one of the processor, which leaves out what other
programs took. --json FILE keeps all figures, with machine and versions.
"""


def subjects() -> list[str]:
    """List what can be measured, in alphabetical order, without importing it."""
    return sorted(item.name for item in pkgutil.iter_modules(__path__) if item.name[0] != "_")


def main(argv: list[str]) -> int:
    """Hand over to the subject.

    Raises ValueError naming the subjects where there is no such one.
    """
    if not argv or argv[0] in ("-h", "--help"):
        print(usage())
        return 0
    subject, *rest = argv
    if subject not in subjects():
        raise ValueError(f"no {subject!r} to measure: there are {', '.join(subjects())}")
    return import_module(f"{__name__}.{subject}").main(rest)


def usage() -> str:
    """Return the page that `normlab bench --help` prints."""
    does = {name: import_module(f"{__name__}.{name}").HELP for name in subjects()}
    lines = [listing(f"  {name:<10}", does[name].split()) for name in does]
    usage = "usage: normlab bench SUBJECT ..."
    return "\n".join(
        [usage, "", listing("", HELP.split()), "", *lines, "", listing("", _ABOUT.split())]
    )
