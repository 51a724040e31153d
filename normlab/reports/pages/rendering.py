"""HTML pages, each a self-contained file with inline style and scripts.

A content security policy in the page forbids all requests, so a page needs no other file. All text
is escaped, including control characters.
"""

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING
from urllib.parse import quote

from normlab.formats import duration
from normlab.records.labels import one_line
from normlab.reports.figures.line_styles import DARK, LIGHT, Theme
from normlab.reports.pages.chart_json import Charts
from normlab.reports.tables.score_table import DifferenceText, ValueText
from normlab.templates import environment

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; base-uri 'none'; form-action 'none'"
)


def page(template: str, charts: Charts | None = None, **values: object) -> str:
    """Render a template that extends `page.html`. `charts` is the data for `charts.js`, if any.

    Raises jinja2's UndefinedError if the template uses a name that is not in `values`.
    """
    from markupsafe import Markup

    drawn = [] if charts is None else ["charts.js"]
    loaded = _environment().get_template(template)
    return loaded.render(
        **values,
        colours=Markup(_colours(LIGHT)),
        dark_colours=Markup(_colours(DARK)),
        style=Markup(_text("report.css")),
        script=Markup(_text("tools.js", "tables.js", *drawn, "report.js")),
        data=charts,
        policy=_POLICY,
    )


def _text(*names: str) -> str:
    folder = files("normlab.reports.pages") / "templates"
    return "".join((folder / name).read_text("utf-8") for name in names)


def _colours(theme: Theme) -> str:
    variables = [f"--{name}: {getattr(theme, name)};" for name in ("paper", "ink", "quiet", "grid")]
    return " ".join([*variables, *(f"--hue-{n}: {hue};" for n, hue in enumerate(theme.hues))])


def _marked(pattern: str, by: str, text: str) -> "Markup":
    from markupsafe import Markup, escape

    return Markup(re.sub(pattern, by, str(escape(one_line(text)))))


def _value(value: ValueText | None) -> str:
    """Return a mean with its standard deviation, or a dash if there is none."""
    if value is None:
        return "\N{EN DASH}"
    return f"{value.mean} \N{PLUS-MINUS SIGN} {value.sd}" if value.sd else value.mean


def _difference(difference: DifferenceText) -> "Markup":
    """Return a difference that breaks only before its interval and before its p value."""
    from markupsafe import Markup

    if not difference.p:
        return Markup.escape(difference.mean)
    p = Markup("\N{NO-BREAK SPACE}").join(difference.p.split(" "))
    parts = difference.mean, difference.low, difference.high, p
    return Markup("{} [{},\N{NO-BREAK SPACE}{}], {}").format(*parts)


@cache
def _environment() -> "Environment":
    from markupsafe import Markup

    def finalize(value: object) -> object:
        return value if not isinstance(value, str) or isinstance(value, Markup) else one_line(value)

    jinja = environment(
        "normlab.reports.pages", autoescape=True, finalize=finalize, keep_trailing_newline=True
    )
    compact = {"separators": (",", ":"), "allow_nan": False, "sort_keys": True}
    jinja.policies["json.dumps_kwargs"] = compact
    jinja.filters |= {
        "duration": duration,
        "breakable": lambda path: _marked(r"(?<=[/_])(?=\w)", "<wbr>", path),
        "value": _value,
        "difference": _difference,
        "coded": lambda text: _marked(r"`([^`]+)`", r"<code>\1</code>", text),
        "link": quote,
    }
    return jinja
