"""Jinja's environment for the templates of a package, which are in its folder `templates`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


def environment(package: str, **settings: Any) -> "Environment":
    """Return the environment of a package; `settings` are Jinja's own.

    A template that uses a name without a value raises jinja2's UndefinedError.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader(package, "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        **settings,
    )
