"""Generated blocks are made of records, and say what is wrong with one that cannot be."""

import json
import re

import pytest

from normlab.reports.pages import pages_with_blocks, written
from normlab.reports.published import publish
from normlab.studies import load_study
from tests.reports.tables import made, planned
from tests.test_architecture import ROOT

BLEU = "test/bleu"


@pytest.fixture
def root(tmp_path):
    study = load_study("placement_depth")
    base, other = list(study.rows)[:2]
    runs = [
        (planned(row, seed, point), made(norm, seed, {BLEU: value + seed, "valid/loss": 3.0}))
        for row, norm, value in ((base, "ln", 30.0), (other, "bn", 20.0))
        for point in ("a=1", "a=2")
        for seed in (1, 2)
    ]
    publish(tmp_path / "results", study, "small", runs)
    (tmp_path / "results" / "bench.json").write_text(json.dumps({"runs": [{"rate": 1234.5}]}))
    return tmp_path / "results"


@pytest.fixture
def rows():
    return list(load_study("placement_depth").rows)


def block(said, made=""):
    return f"<!-- normlab: {said} -->{made}<!-- /normlab -->"


def made_of(root, said):
    page = root / "page.md"
    page.write_text(f"It is {block(said)} BLEU.\n")
    text, stale = written(page, root)
    assert len(stale) == 1
    return text.removeprefix(f"It is <!-- normlab: {said} -->").partition("<!-- /normlab -->")[0]


def test_a_mean_and_a_difference_of_a_row(root, rows):
    base, other = rows[:2]
    of = f"placement_depth/small {BLEU} at=a=1"
    assert made_of(root, f"mean {of} row='{base}'") == "31.50 +- 0.71"
    other_score = f"mean placement_depth/small valid/loss at=a=2 row='{base}'"  # no column of it
    assert made_of(root, other_score) == "3.000 +- 0.000"
    assert made_of(root, f"difference {of} row='{other}'").startswith("-10.00 [-10.00, -10.00]")


def test_a_value_of_a_report(root):
    assert made_of(root, "value bench.json runs.0.rate format=,.1f") == "1,234.5"


def test_a_table_of_some_columns_and_rows_says_what_it_is_made_of(root, rows):
    said = f"table placement_depth/small columns={BLEU} rows='{rows[0]}' at=a=2"
    text = made_of(root, said)
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(lines) == 3 and "31.50 +- 0.71" in lines[2] and "a=2" in lines[2]
    assert "rows of fewer than 5 seeds decide nothing" in text
    assert "results/placement_depth/small/table.md" in text


def test_a_block_that_is_up_to_date_is_left_alone(root, rows):
    page = root / "page.md"
    page.write_text(block(f"mean placement_depth/small {BLEU} at=a=1 row='{rows[0]}'"))
    text, _ = written(page, root)
    page.write_text(text)
    assert written(page, root) == (text, [])


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("sum x y", "no kind 'sum': there are table, mean"),
        ("mean placement_depth/small", "expected STUDY/SCALE SCORE"),
        ("mean none/cpu test/bleu row=ln", "holds no records.jsonl"),
        ("mean placement_depth/small test/bleu row=xn", "name one row, with row= and at=, of: "),
        ("table placement_depth/small columns=test/none", "no 'test/none': there are"),
        ("value bench.json runs.7.rate", "bench.json has no number runs.7.rate"),
        ("value bench.json runs", "bench.json has no number runs"),
    ],
)
def test_a_block_that_cannot_be_made_is_named_with_its_page(root, said, problem):
    page = root / "page.md"
    page.write_text(block(said))
    with pytest.raises(ValueError, match=r"page.md: block `") as caught:
        written(page, root)
    assert problem in str(caught.value)


def test_a_block_without_its_end_is_named(root):
    page = root / "page.md"
    page.write_text("<!-- normlab: mean a b -->1.0\n")
    with pytest.raises(ValueError, match=r"page.md: a block without its end"):
        written(page, root)


def test_pages_with_blocks_are_those_of_results_and_readme_and_docs_beside(root):
    places = ("README.md", "README.zh.md", "docs/zh/tutorial.md", "results/LOG.md")
    for place in places:
        (root.parent / place).parent.mkdir(parents=True, exist_ok=True)
        (root.parent / place).write_text(block("value bench.json runs.0.rate"))
    (root / "other.md").write_text("by hand")
    found = [page.relative_to(root.parent).as_posix() for page in pages_with_blocks(root)]
    assert found == [place.replace("results", root.name) for place in places]


BLOCKS = re.compile(r"<!-- normlab: .*?<!-- /normlab -->", re.DOTALL)


def test_measured_figures_of_the_readme_and_the_log_stand_in_blocks():
    log = BLOCKS.sub("", (ROOT / "results" / "LOG.md").read_text())
    assert re.findall(r"\d \+- \d|p [=<] 0|\[[-+]?\d+\.\d+, ", log) == []
    for name in ("README.md", "README.zh.md"):
        found = BLOCKS.sub("", (ROOT / name).read_text().split("\n## ")[1])  # what was found
        assert "BLEU" in found and re.findall(r"\d\.\d|\d ?%", found) == []
