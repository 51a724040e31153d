"""The Jinja environment for a package's templates, which are in its folder `templates`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


def environment(package: str, **settings: Any) -> "Environment":
    """Return the Jinja environment for a package's templates. `settings` are passed to Jinja.

    Rendering a template that uses an undefined name raises jinja2's UndefinedError.
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
    """Return the Jinja environment for a package's LaTeX templates.

    LaTeX itself uses braces, so blocks are `((* *))`, values `((( )))` and comments `((= =))`.
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
