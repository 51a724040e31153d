"""Whether two runs were made by the same code."""

from collections.abc import Iterable, Mapping

MadeBy = tuple[int | str, Mapping[str, str]]
"""The numerics of a run and the hashes of its own norms (`RunRecord.made_by`)."""


def same_code(a: MadeBy, b: MadeBy) -> bool:
    """Tell whether two runs have the same numerics, and the same file of each norm of both."""
    return a[0] == b[0] and all(a[1][name] == b[1][name] for name in a[1].keys() & b[1].keys())


def code_remark(made_by: Iterable[MadeBy]) -> str | None:
    """Say that runs were made by different states of the code; None where they were not."""
    numerics: set[int | str] = set()
    norms: dict[str, set[str]] = {}
    for number, own in made_by:
        numerics.add(number)
        for name, digest in own.items():
            norms.setdefault(name, set()).add(digest)
    changed = [name for name, found in norms.items() if len(found) > 1]
    if len(numerics) == 1 and not changed:
        return None
    named = f": {', '.join(changed)}" if changed else ""
    return f"made by different states of the code{named}"
