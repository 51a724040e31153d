"""The options that arguments choose: one of each group, but of those that are lists."""

from collections.abc import Sequence

from normlab.registry import run_groups, sites

_LISTS = ("probe", "sink")


def check_single(arguments: Sequence[str]) -> None:
    """Raise ValueError for a list of options where a group takes one."""
    for group, option in _chosen(arguments):
        if option.startswith("["):
            raise ValueError(
                f"{group}={option}: {group} takes one option; a sweep over several is "
                f"normlab train -m {group}={option.strip('[]').replace(' ', '')}"
            )


def check_given_once(arguments: Sequence[str]) -> None:
    """Raise ValueError for a group or key that is given twice: Hydra would take the last, unsaid.

    Only what a person types is looked at; studies and batteries put a value over another.
    """
    check_single(arguments)
    found: dict[str, str] = {}
    for group, option in _chosen(arguments):
        if found.setdefault(group, option) != option:
            raise ValueError(
                f"{group}={found[group]} and {group}={option} are both given: {group} takes one "
                "option"
            )
    values: dict[str, str] = {}
    for text in arguments:
        key, equals, value = text.partition("=")
        if not equals or text.startswith(("-", "~")) or key.lstrip("+") in _LISTS:
            continue
        if values.setdefault(key.lstrip("+"), value) != value:
            name = key.lstrip("+")
            raise ValueError(
                f"{name}={values[name]} and {name}={value} are both given: give one value of {name}"
            )


def _chosen(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """Return the groups that take one option, each with what is given."""
    groups = {*run_groups(), *sites()} - {*_LISTS}
    pairs = (text.partition("=") for text in arguments if not text.startswith("-"))
    named = ((key.lstrip("+"), found, value.strip("'\"")) for key, found, value in pairs)
    return [(key, value) for key, found, value in named if found and key in groups]
