"""Decides what every page of results has: one file, its style and scripts inside, nothing to load.

A policy in the page forbids every request, so a page that opens is complete. Colors are those of
the figures.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from normlab.records.text import one_line
from normlab.reports.figures.style import DARK, LIGHT, Theme

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

_TEMPLATES = "templates"
_MINUS = re.compile(r"(?<![\w-])-(?=\d)")
_SCRIPTS = ("tools.js", "tables.js")  # of all pages, before those of charts
_CHARTS = "charts.js"
_LAST = "report.js"
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; base-uri 'none'; form-action 'none'"
)


def page(
    template: str,
    *,
    charts: Mapping[str, Any] | None,
    also: Sequence[str] = (),
    live: bool = False,
    **values: object,
) -> str:
    """Render a template that extends `page.html`; all that stands in `values` is escaped.

    `charts` is what the page's script draws, if anything. `also` names style sheets and scripts
    beside the template that follow those of all pages. A `live` page may ask the server that it is
    from, and no other, for itself. Raises jinja2's errors for a name that a template uses and
    nobody gave.
    """
    from jinja2.utils import htmlsafe_json_dumps
    from markupsafe import Markup

    environment = _environment()
    scripts = (*_SCRIPTS, *([] if charts is None else [_CHARTS]), _LAST)
    data = None
    if charts is not None:
        data = htmlsafe_json_dumps(charts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return environment.get_template(template).render(
        **values,
        colours=Markup(colours(LIGHT)),
        dark_colours=Markup(colours(DARK)),
        style=Markup(_own("report.css", *(name for name in also if name.endswith(".css")))),
        script=Markup(_own(*scripts, *(name for name in also if name.endswith(".js")))),
        data=data,
        policy=policy(live=live),
        live=live,
    )


def policy(*, live: bool) -> str:
    """Return what a page may load: nothing, or itself anew."""
    if not live:
        return _POLICY
    return _POLICY + "; connect-src 'self'"


def colours(theme: Theme) -> str:
    """Return the colours of a theme as CSS variables."""
    names = {"paper": theme.paper, "ink": theme.ink, "quiet": theme.quiet, "grid": theme.grid}
    named = [f"--{name}: {colour};" for name, colour in names.items()]
    return " ".join([*named, *(f"--hue-{n}: {hue};" for n, hue in enumerate(theme.hues))])


def link(path: str) -> str:
    """Return a relative path as an address."""
    return quote(path)


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

    return Markup(re.sub(r"(?<=[/_])(?=\w)", "<wbr>", str(escape(path))))


def coded(text: str) -> "Markup":
    """Return text escaped, what stands in backticks as code."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("normlab.reports.html", _TEMPLATES)
    made = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters = (link, duration, joined, breakable, coded)
    made.filters |= {each.__name__: each for each in filters} | {"line": one_line}
    return made


def _own(*names: str) -> str:
    folder = files("normlab.reports.html") / _TEMPLATES
    return "".join((folder / name).read_text("utf-8") for name in names)
