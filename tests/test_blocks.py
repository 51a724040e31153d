"""Generated blocks come from records. If one cannot be generated, an error says why."""

import json
import re

import pytest

from normlab.blocks import outdated_blocks, pages_with_blocks, regenerated
from normlab.claims.saved import ledger_json
from normlab.publishing.publish import publish
from normlab.studies.load import load_study
from scripts import blocks as script
from tests.claims.ledgers import saved_claim, saved_part
from tests.reports.handmade import made, run
from tests.test_architecture import ROOT

BLEU = "test/bleu"
ROWS = list(load_study("placement_depth").rows)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("blocks") / "results"
    runs = [
        run(
            made(norm, seed, {BLEU: values[seed - 1], "valid/loss": 3.0}, batch_size=n),
            row,
            seed,
            point,
        )
        for row, norm, values in ((ROWS[0], "ln", (31.0, 32.0)), (ROWS[1], "bn", (21.1, 21.9)))
        for n, point in enumerate(("a=1", "a=2"), 1)
        for seed in (1, 2)
    ]
    publish(folder, load_study("placement_depth"), "small", runs)
    (folder / "bench.json").write_text(json.dumps({"runs": [{"rate": 1234.5}]}))
    return folder


def block(said, made=""):
    return f"<!-- normlab: {said} -->{made}<!-- /normlab -->"


def made_of(root, said):
    page = root / "page.md"
    page.write_text(f"It is {block(said)} BLEU.\n")
    text = regenerated(page, root)
    page.write_text(text)
    assert regenerated(page, root) == text
    return text.removeprefix(f"It is <!-- normlab: {said} -->").partition("<!-- /normlab -->")[0]


def test_blocks_contain_a_mean_a_difference_or_a_value_of_a_json_file(root):
    of = f"placement_depth/small {BLEU} at=a=1"
    assert made_of(root, f"mean {of} row='{ROWS[0]}'") == "31.50 +- 0.71"
    other_score = f"mean placement_depth/small valid/loss at=a=2 row='{ROWS[0]}'"  # not a column
    assert made_of(root, other_score) == "3.000 +- 0.000"
    assert made_of(root, f"difference {of} row='{ROWS[1]}'").startswith("-10.00 [-11.27, -8.73]")
    assert made_of(root, "value bench.json runs.0.rate format=,.1f") == "1,234.5"


@pytest.mark.parametrize("name", ["README.zh.md", "zh/tutorial.md", "README.md"])
def test_chinese_pages_have_the_sign_for_plus_minus(root, name):
    page = root / name
    page.parent.mkdir(exist_ok=True)
    page.write_text(block(f"mean placement_depth/small {BLEU} at=a=1 row='{ROWS[0]}'"))
    sign = "+-" if name == "README.md" else "\u00b1"
    assert f"31.50 {sign} 0.71" in regenerated(page, root)


def test_the_size_of_a_part_is_found_by_its_name_in_any_order_of_parts(root):
    parts = (
        saved_part("first", "undecided", finding="no runs"),
        saved_part("worse", "supported", value=-1.234),
    )
    for order in (parts, parts[::-1]):
        (root / "claims.json").write_text(ledger_json([saved_claim(2, *order)]))
        assert made_of(root, "part 2.worse format=.1f") == "1.2"
    for said, problem in (
        ("part 2.first", "part 2.first has no value: no runs"),
        ("part 2.other", "no part 2.other"),
        ("value claims.json 0.parts.1.value", "a part is named"),
    ):
        with pytest.raises(ValueError, match=problem):
            made_of(root, said)


def test_a_table_block_shows_the_chosen_rows_and_links_the_whole_table(root):
    said = f"table placement_depth/small columns={BLEU} rows='{ROWS[0]}' at=a=2"
    text = made_of(root, said)
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(lines) == 3 and "31.50 +- 0.71" in lines[2] and "a 2" in lines[2]
    assert "rows with fewer than 5 seeds decide nothing" in text
    assert "results/placement_depth/small/table.md" in text


def test_an_inspected_block_is_a_table_with_means_standard_deviations_and_seeds(root):
    rows = {
        "bn": {"sink": {"mean": 0.25, "sd": 0.0123, "n": 5}},
        "dyt": {
            "sink": {"mean": 0.5, "sd": None, "n": 1},
            "W8": {"mean": 1e-5, "sd": None, "n": 1},
        },
    }
    (root / "sheets.json").write_text(json.dumps({"rows": rows}))
    text = made_of(root, "inspected sheets.json columns=W8,sink")
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert lines[0] == "| norm | W8 | sink | seeds |"
    assert lines[2:] == ["| bn | - | 0.25 +- 0.012 | 5 |", "| dyt | 1e-05 | 0.5 | 1 |"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (block("inspected bench.json"), "bench.json has no rows of inspected runs: KeyError"),
        (block("sum x y"), "block `sum x y`: no kind 'sum': there are table, mean"),
        (block("mean placement_depth/small"), "expected STUDY/SCALE SCORE"),
        (block("mean placement_depth/small test/bleu row=xn"), "name one row, with row= and at="),
        (block("table placement_depth/small columns=test/x"), "no 'test/x': there are"),
        (block("claims suported"), "no 'suported': there are supported, contradicted, mixed"),
        (block("claims"), "no '': there are supported"),
        (block("claims supported format=d"), "no format= for claims: it takes no named values"),
        (block("part 2.worse fromat=.1f"), "no fromat= for part: it takes format="),
        (block("table placement_depth/small row=ln"), "no row= for table: it takes columns="),
        (block("value bench.json runs.7.rate"), "bench.json has no number runs.7.rate"),
        ("<!-- normlab: mean a b -->1.0\n", "page.md: a block without its end"),
    ],
)
def test_a_block_that_cannot_be_generated_is_an_error_that_names_its_page(root, text, problem):
    page = root / "page.md"
    page.write_text(text)
    with pytest.raises(ValueError, match=r"page.md: ") as caught:
        regenerated(page, root)
    assert problem in str(caught.value)


def test_an_edited_number_is_reported_with_its_page_and_its_block(root):
    page = root / "page.md"
    page.write_text(f"{block('value bench.json runs.0.rate')}, {block('claims supported')}")
    saved = saved_claim(2, saved_part("worse", "supported", value=1.0))
    (root / "claims.json").write_text(ledger_json([saved]))
    page.write_text(regenerated(page, root))
    assert outdated_blocks(page, root) == []
    page.write_text(page.read_text().replace("1234", "1334").replace("1,234", "1,334"))
    (line,) = outdated_blocks(page, root)
    assert line.startswith(f"{page}: the block `value bench.json runs.0.rate` does not match")


def test_pages_outside_a_folder_of_results_are_only_those_of_the_checkout(tmp_path):
    (tmp_path / "mine" / "notes").mkdir(parents=True)
    (tmp_path / "README.md").write_text(block("claims supported", "7"))
    inside = tmp_path / "mine" / "notes" / "mine.md"
    inside.write_text(block("claims supported", "7"))
    (tmp_path / "mine" / "latin.md").write_bytes(b"caf\xe9")
    assert pages_with_blocks(tmp_path / "mine") == [inside]
    assert {ROOT / "README.md", ROOT / "docs" / "tutorial.md"} < {
        *pages_with_blocks(ROOT / "results")
    }


def test_the_script_checks_without_writing_and_its_help_writes_nothing(root, monkeypatch, capsys):
    page = root / "page.md"
    page.write_text(block("value bench.json runs.0.rate", "edited"))
    monkeypatch.setattr(script, "pages_with_blocks", lambda _: [page])
    monkeypatch.setattr(script, "RESULTS", root)
    monkeypatch.setattr(script, "pages", lambda _: {})
    monkeypatch.setattr(script, "which_norm_page", lambda _: "")
    (root / "which_norm.md").write_text("")
    with pytest.raises(SystemExit) as stopped:
        script.main(["--help"])
    assert stopped.value.code == 0 and "edited" in page.read_text()
    assert script.main(["--check"]) == 1 and "edited" in page.read_text()
    assert f"{page}: outdated" in capsys.readouterr().out
    assert script.main([]) == 0 and "edited" not in page.read_text()
    assert script.main(["--check"]) == 0


BLOCKS = re.compile(r"<!-- normlab: .*?<!-- /normlab -->", re.DOTALL)


def test_measured_values_in_the_readme_and_the_log_are_in_up_to_date_blocks():
    for page in pages_with_blocks(ROOT / "results"):
        text = page.read_text("utf-8")
        assert regenerated(page, ROOT / "results") == text, page
        # In Markdown, a line that begins with a comment ends the paragraph.
        assert re.findall(r"(?m)^[ *-]*<!-- normlab: (?!table|inspected).*", text) == [], page
    log = BLOCKS.sub("", (ROOT / "results" / "LOG.md").read_text())
    assert re.findall(r"\d \+- \d|p [=<] 0|\[[-+]?\d+\.\d+, ", log) == []
    for name in ("README.md", "README.zh.md"):
        found = BLOCKS.sub(
            "", (ROOT / name).read_text().split("\n## ")[1]
        )  # the section with the findings
        assert "BLEU" in found and re.findall(r"\d\.\d|\d ?%", found) == []
