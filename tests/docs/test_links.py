"""Links between pages: the file exists, and so does the heading after `#`."""

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

LINK = re.compile(r"\]\(([^()\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def pages() -> list[str]:
    command = ["git", "ls-files", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.splitlines() if "/templates/" not in name]


def text_of(page: Path) -> str:
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them, and those set by hand."""
    seen, found = Counter[str](), set[str]()
    for heading in re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE):
        shown = re.sub(r"<!--.*?-->|\]\([^)]*\)", "", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found | {*re.findall(r'(?:id|name)="([^"]+)"', page.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("name", pages())
def test_every_link_to_a_file_and_to_a_heading_leads_somewhere(name):
    page, broken = ROOT / name, []
    for target in LINK.findall(text_of(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            broken.append(target)
    assert not broken
