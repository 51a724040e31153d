"""The frame of every HTML page: one self-contained file with its style and scripts inside.

A policy in the page forbids all requests, so a page that opens is complete. All text is escaped,
including control characters.
"""

import re
from collections.abc import Mapping
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
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; base-uri 'none'; form-action 'none'"
)


def page(template: str, charts: Mapping[str, Any] | None = None, **values: object) -> str:
    """Render a template that extends `page.html`.

    `charts` is the data for `charts.js`, if any. A style sheet and a script named after the
    template follow those of all pages. Raises jinja2's error for a name that the template uses but
    `values` lacks.
    """
    from markupsafe import Markup

    own = template.removesuffix(".html")
    drawn = [] if charts is None else ["charts.js"]
    script = _text("tools.js", "tables.js", *drawn, "report.js", f"{own}.js")
    return (
        _environment()
        .get_template(template)
        .render(
            **values,
            colours=Markup(_colours(LIGHT)),
            dark_colours=Markup(_colours(DARK)),
            style=Markup(_text("report.css", f"{own}.css")),
            script=Markup(script),
            data=_printable(charts),
            policy=_POLICY,
        )
    )


def _text(*names: str) -> str:
    """Return the text of style sheets or scripts; a missing file counts as empty."""
    folder = files("normlab.reports") / "templates"
    found = [folder / name for name in dict.fromkeys(names)]
    return "".join(path.read_text("utf-8") for path in found if path.is_file())


def _printable(value: Any) -> Any:
    """Return nested chart data with the control characters in all texts escaped."""
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, Mapping):
        return {key: _printable(item) for key, item in value.items()}
    return [_printable(item) for item in value] if isinstance(value, list | tuple) else value


def _colours(theme: Theme) -> str:
    """Return the colours of a theme as CSS variables."""
    named = [f"--{name}: {getattr(theme, name)};" for name in ("paper", "ink", "quiet", "grid")]
    return " ".join([*named, *(f"--hue-{n}: {hue};" for n, hue in enumerate(theme.hues))])


def duration(seconds: float) -> str:
    """Format a duration with at most two units."""
    whole = round(seconds)
    for size, unit, smaller, rest in ((3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // smaller} {rest}"
    return f"{whole} s"


def signed(text: str) -> str:
    """Replace the hyphens before negative numbers with minus signs."""
    return _MINUS.sub("\N{MINUS SIGN}", text)


def breakable(path: str) -> "Markup":
    """Return a path escaped, with places where a narrow column may break it."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"(?<=[/_])(?=\w)", "<wbr>", str(escape(one_line(path)))))


def coded(text: str) -> "Markup":
    """Return text escaped, with backticks turned into code tags."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(one_line(text)))))


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def finalize(value: object) -> object:
        return value if not isinstance(value, str) or isinstance(value, Markup) else one_line(value)

    made = Environment(
        loader=PackageLoader("normlab.reports", "templates"),
        autoescape=True,
        finalize=finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    made.policies["json.dumps_kwargs"]["sort_keys"] = True
    made.filters |= {each.__name__: each for each in (duration, breakable, coded, signed)}
    made.filters["link"] = quote
    return made
