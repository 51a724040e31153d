"""Pages of results: one file each that opens from disk, with its style and scripts inside.

A policy in the page forbids every request, so a page that opens is complete. All text is escaped,
and control characters are written out.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from normlab.records.labels import one_line
from normlab.reports.panels import DARK, LIGHT, Theme

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

_MINUS = re.compile(r"(?<![\w-])-(?=\d)")
_SCRIPTS = ("tools.js", "tables.js")  # of all pages, before those of charts
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; base-uri 'none'; form-action 'none'"
)


def page(
    template: str, *, charts: Mapping[str, Any] | None, also: Sequence[str] = (), **values: object
) -> str:
    """Render a template that extends `page.html`.

    `charts` is what the page's script draws, if anything. `also` names style sheets and scripts
    next to the template that follow those of all pages. Raises jinja2's errors for a name that the
    template uses and that is not in `values`.
    """
    from jinja2.utils import htmlsafe_json_dumps
    from markupsafe import Markup

    scripts = (*_SCRIPTS, *([] if charts is None else ["charts.js"]), "report.js")
    data = None
    if charts is not None:
        data = htmlsafe_json_dumps(
            _printable(charts), sort_keys=True, separators=(",", ":"), allow_nan=False
        )
    return (
        _environment()
        .get_template(template)
        .render(
            **values,
            colours=Markup(colours(LIGHT)),
            dark_colours=Markup(colours(DARK)),
            style=Markup(_own("report.css", *(name for name in also if name.endswith(".css")))),
            script=Markup(_own(*scripts, *(name for name in also if name.endswith(".js")))),
            data=data,
            policy=_POLICY,
        )
    )


def _printable(value: Any) -> Any:
    """Return nested values of a chart with the control characters of all texts written out."""
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, Mapping):
        return {key: _printable(item) for key, item in value.items()}
    return [_printable(item) for item in value] if isinstance(value, list) else value


def colours(theme: Theme) -> str:
    """Return the colours of a theme as CSS variables."""
    names = {"paper": theme.paper, "ink": theme.ink, "quiet": theme.quiet, "grid": theme.grid}
    named = [f"--{name}: {colour};" for name, colour in names.items()]
    return " ".join([*named, *(f"--hue-{n}: {hue};" for n, hue in enumerate(theme.hues))])


def duration(seconds: float) -> str:
    """Write a duration with two units."""
    whole = round(seconds)
    for size, unit, smaller, rest in ((3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // smaller} {rest}"
    return f"{whole} s"


def joined(names: Sequence[str]) -> str:
    """Write names as a list in a sentence."""
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else "".join(names)


def signed(text: str) -> str:
    """Write the minus signs of numbers in a text as such."""
    return _MINUS.sub("\N{MINUS SIGN}", text)


def breakable(path: str) -> "Markup":
    """Return a path escaped, with places where a narrow column may fold it."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"(?<=[/_])(?=\w)", "<wbr>", str(escape(one_line(path)))))


def coded(text: str) -> "Markup":
    """Return text escaped, what is in backticks as code."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(one_line(text)))))


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def finalize(value: object) -> object:
        if isinstance(value, str) and not isinstance(value, Markup):
            return one_line(value)
        return value

    made = Environment(
        loader=PackageLoader("normlab.reports", "templates"),
        autoescape=True,
        finalize=finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {each.__name__: each for each in (duration, joined, breakable, coded)}
    made.filters["link"] = quote
    return made


def _own(*names: str) -> str:
    folder = files("normlab.reports") / "templates"
    return "".join((folder / name).read_text("utf-8") for name in names)
