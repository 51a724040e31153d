"""Add pages to the site that are not in docs/: README, the reference and the notebooks.

A link from docs/ to another file of the repository becomes the path of that file as text, because
the site does not have the file. A link to a file that does not exist ends the build.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import reference
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
COPIED = {
    "index.md": "README.md",
    "zh/index.md": "README.zh.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
}
"""Pages of the site whose files are outside docs/."""
_PLACES = {ROOT / path: place for place, path in COPIED.items()}
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]+)\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
_FENCED = re.compile(r"(^ *```.*?^ *```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    made = {place: (ROOT / path).read_text("utf-8") for place, path in COPIED.items()}
    made |= reference.pages()
    for path in sorted((DOCS / "notebooks").glob("*.ipynb")):
        made[f"notebooks/{path.stem}.md"] = notebook(path)
    for place, content in made.items():
        files.append(File.generated(config, place, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace links within the repository by links within the site."""
    place = page.file.src_uri
    origin = ROOT / COPIED[place] if place in COPIED else DOCS / place

    def linked(match: re.Match[str]) -> str:
        text, target, anchor = match["text"], match["target"], match["anchor"] or ""
        if ":" in target:
            return match[0]
        path = Path(os.path.normpath(origin.parent / target))
        if not path.exists() and files.get_file_from_path(os.path.relpath(path, DOCS)) is None:
            raise PluginError(f"{origin}: {target}: there is no such file")
        there = _PLACES.get(path)
        if there is None and path.is_relative_to(DOCS) and path.suffix in (".md", ".ipynb"):
            there = path.relative_to(DOCS).with_suffix(".md").as_posix()
        elif there is None and path.is_relative_to(DOCS) and path.suffix == ".html":
            there = path.relative_to(DOCS).as_posix()
        if there is None:
            return f"{text} (`{path.relative_to(ROOT)}`)"
        return f"[{text}]({os.path.relpath(there, os.path.dirname(place) or '.')}{anchor})"

    parts = _FENCED.split(markdown)
    return "".join(p if i % 2 else _LINK.sub(linked, p) for i, p in enumerate(parts))


def notebook(path: Path) -> str:
    """Return a notebook as a page: its text and its code."""
    content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    parts = []
    for cell in content["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    return "\n\n".join([*parts, f"`docs/notebooks/{path.name}` is the notebook itself."]) + "\n"
