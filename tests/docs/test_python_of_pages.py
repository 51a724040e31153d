"""The pages build without warnings, both languages match, and the reference lists every metric."""

import os
import re
import subprocess
import sys
from typing import Any

import msgspec
import pytest

import normlab
from normlab.config.registry import option_names, options
from normlab.metrics.glossary import PROBES, metric
from tests.docs.pages import IN_STEP, PAGES, ROOT, fenced


class Direction(msgspec.Struct):
    """The part of a score that is also in the glossary."""

    higher_is_better: bool | None = None


class Measured(msgspec.Struct):
    """The part of a published record with the names of metrics."""

    scores: dict[str, Direction] = {}
    stability: dict[str, Any] = {}


BLOCK = re.compile(r"<!-- normlab: .*?<!-- /normlab -->", re.DOTALL)


def test_the_readme_has_at_most_900_words_and_100_lines():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 100
    assert len(re.sub(r"<!--.*?-->", "", text).split()) <= 900


EXPLANATION = re.compile(r"(?<=\S) {2,}\S.*$", re.MULTILINE)
"""What a line of code or of a folder tree is for, after two spaces or more. It is translated."""


def shape(text):
    """Return what both languages of a page must share: headings, code, blocks, links, rows."""
    prose = BLOCK.sub("", re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL))
    targets = re.findall(r"\]\(([^)\s]+)\)", prose)
    return {
        "headings": re.findall(r"^#+ (?:\d+\.)?", prose, re.MULTILINE),
        "code": [EXPLANATION.sub("", code) for code in fenced(text)],
        "blocks": [block.replace(" \u00b1 ", " +- ") for block in BLOCK.findall(text)],
        "links": sorted(target.rpartition("/")[2].replace(".zh.md", ".md") for target in targets),
        "paragraphs": len(re.split(r"\n\s*\n", prose.strip())),
        "rows": len(re.findall(r"^\|", prose, re.MULTILINE)),
    }


@pytest.mark.parametrize("page", IN_STEP, ids=lambda page: page.name)
def test_the_chinese_version_of_a_page_has_the_same_structure(page):
    chinese = shape(IN_STEP[page].read_text())
    for what, there in shape(page.read_text()).items():
        assert chinese[what] == there, f"{IN_STEP[page]} and {page} differ in {what}"


def test_every_metric_in_the_published_records_is_in_the_glossary():
    seen = {}
    for pack in (ROOT / "results").rglob("records.jsonl"):
        for line in pack.read_bytes().splitlines():
            record = msgspec.json.decode(line, type=Measured)
            seen |= {name: score.higher_is_better for name, score in record.scores.items()}
            seen |= dict.fromkeys(record.stability)
    assert "stability/tid/mean" in seen and "test/bleu" in seen
    assert [name for name in seen if metric(name) is None] == []
    for name, more in seen.items():
        better = metric(name).better
        assert better == "-" or more is None or (better == "more") == more, name


def test_every_probe_has_metrics_in_the_glossary():
    groups = {option.name for option in options("probe") if "defaults:" in option.path.read_text()}
    assert {name.split("/")[0] for name in PROBES} == set(option_names("probe")) - groups


WITH_PYTHON = [page for page in PAGES if fenced(page.read_text(), "python")]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.name)
def test_every_python_block_of_a_page_parses(page):
    for code in fenced(page.read_text(), "python"):
        compile(code, page.name, "exec")


def test_the_python_page_runs_and_uses_the_whole_interface(tmp_path, monkeypatch, capsys):
    pytest.importorskip("transformers")
    page = (ROOT / "docs" / "howto" / "python.md").read_text()
    (tmp_path / "results").symlink_to(ROOT / "results")
    monkeypatch.chdir(tmp_path)
    code = "\n".join(fenced(page, "python"))
    assert set(re.findall(r"normlab\.(\w+)", code)) == set(dir(normlab))
    exec(compile(code, "python.md", "exec"), {})
    shown = capsys.readouterr().out
    assert f"{fenced(page, 'text')[0].splitlines()[0]}\ntoy   bn    pre        1" in shown
    assert "\npadding: real tokens' outputs change" in shown


def test_the_page_about_any_model_runs_and_shows_its_real_output(tmp_path, monkeypatch, capsys):
    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    page = (ROOT / "docs" / "howto" / "any_model.md").read_text()
    exec(compile("\n".join(fenced(page, "python")), "any_model.md", "exec"), {})
    said = fenced(page, "text")[0].splitlines()[:8]
    assert capsys.readouterr().out.splitlines()[:8] == said


def test_the_site_builds_without_warnings(tmp_path):
    pytest.importorskip("material", reason="the docs extra is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict"]
    done = subprocess.run(
        [*command, "-f", ROOT / "docs" / "site" / "mkdocs.yml", "-d", tmp_path / "site"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "site" / "reference" / "options.html").read_text()
    assert all(f"norm={name}" in page for name in option_names("norm"))
    assert "(<code>results/claims.md</code>)" in (tmp_path / "site" / "index.html").read_text()
