"""Claims that are decided in seconds: the norms on numbers whose answer is known or exact.

A check is a function without arguments in a file of this folder, found by its name
`file.function`, such as `padding.pollutes`; it returns its pieces of evidence. Seeds are fixed and
all is float64, so that a page of figures is the same everywhere.
"""

from importlib import import_module
from pkgutil import iter_modules

from normlab.claims.evidence import Evidence


def run(name: str) -> list[Evidence]:
    """Run a check; raises `ValueError` naming those there are."""
    if name not in (known := names()):
        raise ValueError(f"no check {name!r}; allowed: {', '.join(known)}")
    file, _, function = name.partition(".")
    return getattr(import_module(f"{__name__}.{file}"), function)()


def names() -> list[str]:
    """List the checks: the public functions of this folder's files that return evidence."""
    found: list[str] = []
    for item in iter_modules(__path__):
        if item.name[0] != "_":
            module = import_module(f"{__name__}.{item.name}")
            found += [
                f"{item.name}.{name}"
                for name, value in vars(module).items()
                if name[0] != "_" and getattr(value, "__module__", None) == module.__name__
            ]
    return sorted(found)
