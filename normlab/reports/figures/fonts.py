"""Fonts of figures, with fallbacks for characters that matplotlib's font lacks, such as Chinese."""

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DEFAULT = "sans-serif"
FALLBACKS = (
    *("Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "Noto Sans CJK JP"),
    *("PingFang SC", "Hiragino Sans GB", "Heiti TC", "Arial Unicode MS"),
    *("Microsoft YaHei", "SimHei", "SimSun", "WenQuanYi Zen Hei", "WenQuanYi Micro Hei"),
)
"""Families with Chinese characters, for Linux, macOS and Windows, in order of preference."""


def font_families() -> list[str]:
    """Return matplotlib's default family, then the fallbacks that are installed.

    matplotlib would warn about a family that is not installed.
    """
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    return [_DEFAULT, *(name for name in FALLBACKS if name in installed)]


def texts_without_glyphs(figure: "Figure") -> tuple[str, ...]:
    """Return the texts of a figure that has been drawn for which a character is in no font."""
    from matplotlib.font_manager import FontProperties, findfont, get_font
    from matplotlib.text import Text

    fonts = [findfont(FontProperties(family=[name])) for name in font_families()]
    known = set[int]().union(*(get_font(font).get_charmap() for font in fonts)) | {ord("\n")}
    texts = [each.get_text() for each in figure.findobj(Text) if isinstance(each, Text)]
    return tuple(dict.fromkeys(text for text in texts if not known.issuperset(map(ord, text))))


def lack_of_glyphs(texts: Collection[str]) -> str:
    """Return a line that says which texts have characters without a font, and the remedy."""
    import matplotlib

    cache = f"{matplotlib.get_cachedir()}/fontlist-*.json"
    return (
        f"no installed font has all characters of {', '.join(texts)}, which figures show as boxes; "
        f"install {FALLBACKS[0]} and remove {cache}, or choose other names"
    )
