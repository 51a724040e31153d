"""The pages of the documentation, and the commands in them."""

import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
IN_STEP = {
    ROOT / "README.md": ROOT / "README.zh.md",
    ROOT / "docs" / "tutorial.md": ROOT / "docs" / "zh" / "tutorial.md",
}
"""Pages and their Chinese versions."""
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def fenced(text: str, language: str | None = None) -> list[str]:
    """Return a page's code blocks, in one language or in all."""
    found = _FENCE.findall(text)
    return [textwrap.dedent(code) for _, named, code in found if language in (None, named)]
