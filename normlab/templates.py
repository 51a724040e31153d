"""The Jinja environment for the templates of a package, which are in its folder `templates`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


def environment(package: str, **settings: Any) -> "Environment":
    """Return the environment of a package, with `settings` for Jinja.

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


def latex_environment(package: str) -> "Environment":
    """Return the environment of a package's templates in LaTeX, which needs the usual braces.

    Blocks are `((* *))`, values `((( )))`, and comments `((= =))`.
    """
    return environment(
        package,
        block_start_string="((*",
        block_end_string="*))",
        variable_start_string="(((",
        variable_end_string=")))",
        comment_start_string="((=",
        comment_end_string="=))",
    )
