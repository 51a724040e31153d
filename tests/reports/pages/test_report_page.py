"""The page of a study shows the values of its table, escapes text, and is reproducible."""

import json
import math
import re

import pytest

from normlab.publishing.publish import publish
from normlab.publishing.published import rendered
from normlab.records.manifest import PAGE_FILE, stale
from tests.html_text import Text
from tests.reports.handmade import made, published, run, runs, sized, study

DASH = "\N{EN DASH}"
LEVELS = {"ln": 1.0, "bn": 3.0}


def page_of(folder, of):
    return rendered(of, folder)[folder / PAGE_FILE]


def charts(page):
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', page, re.S)
    return None if found is None else json.loads(found[1])


def panel(page, name):
    (found,) = [each for each in charts(page)["panels"] if each["id"] == name]
    return found


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return published(tmp_path_factory.mktemp("page"), sized(), LEVELS).read_text()


def test_the_table_of_a_page_has_the_values_and_notes_of_the_markdown_table(tmp_path):
    figures = {"ln": {"test/bleu": 35.2}}
    near = [30.0, 30.1, 30.05, 30.001, 30.099]
    values = {"ln": near, "bn": [20.0, 20.2, 20.1, 20.199, 20.001], "gn": [None] * 5}
    folder = publish(tmp_path, study(article_values=figures), "smoke", runs(values))
    read = Text(page_of(folder, study(article_values=figures)))
    head, *rows = read.rows("results")
    assert head[:2] == ["setting", "BLEU test/ bleu, higher is better"]
    ended = "finished 5/5; diverged 0; median spikes 0"
    assert rows[0] == ["ln", "30.05 ± 0.05", DASH, ended, "test/bleu 35.2"]
    # Differences -10, -9.9, -9.95, -9.802, -10.098: deviation 0.111, half an interval 0.139.
    difference = (
        "20.10 ± 0.10 -9.95 [-10.09,\xa0-9.81], p\xa0<\xa00.001"  # breaks at two places only
    )
    assert rows[1][:2] == ["bn", difference]
    assert rows[2] == ["gn", "not run", "not run", "-"]
    notes = (folder / "table.md").read_text().splitlines()
    notes = [line[2:].replace("+-", "±") for line in notes if line[:2] == "- "]
    assert all(" ".join(note.split()) in read.text for note in notes)


def test_the_page_loads_no_external_files(page):
    read = Text(page)
    assert not {"link", "img", "iframe", "base"} & {tag for tag, _ in read.tags}
    assert not any("src" in attributes for _, attributes in read.tags)
    assert all(not re.match(r"[a-z]+:|//", link) for link in read.links)
    policy = next(a["content"] for t, a in read.tags if t == "meta" and "http-equiv" in a)
    assert "default-src 'none'" in policy and "http" not in policy
    assert not re.search(r"@import|url\(", page.partition("</style>")[0])


def test_curves_show_the_mean_and_the_range_of_the_seeds(page):
    loss = panel(page, "chart-training-step-train-loss")
    lines = {(line["row"], line["at"]): line for line in loss["series"]}
    first = lines["ln", "batch_size=8"]
    assert first["x"] == list(range(10, 101, 10)) and first["n"] == 2
    for column, level in (("mean", 1.15), ("low", 1.10), ("high", 1.20)):
        assert first[column][-1] == pytest.approx(level + math.exp(-5), abs=1e-5)
    names = {each["id"] for each in charts(page)["panels"]}
    assert {f"chart-training-step-{n}" for n in ("valid-bleu", "stability-tid-mean")} <= names
    assert not any("encoder" in name for name in names)


def test_a_divergence_is_marked_at_its_step_and_listed_with_its_reason(page):
    loss = panel(page, "chart-training-step-train-loss")
    (end,) = loss["ended"]
    assert (end["row"], end["seed"], end["x"]) == ("bn", 2, 45)
    counts = {(line["row"], line["at"]): line["n"] for line in loss["series"]}
    assert counts["bn", "batch_size=8"] == [2] * 4 + [1] * 6
    read = Text(page)
    assert "diverged 1/2; median spikes 0" in {row[-1] for row in read.rows("results")}
    assert "at step 45, loss is nan, first in encoder.0" in read.text
    told = [row for row in read.rows("runs") if "diverged" in row[4]]
    assert len(told) == 1 and told[0][5] == "45"


def test_the_page_shows_answer_figure_legend_table_and_filters_in_this_order(page):
    answer, figure = page.index('class="answer"'), page.index('id="chart-batch-size-sequences-')
    legend, table, filters = (
        page.index(f'class="{name}"') for name in ("legend", "results", "filters")
    )
    assert answer < figure < legend < table < filters
    shown = page.partition('<details class="more">')[0].count('class="chart"')
    assert shown == 1 and page.count('class="chart"') > 4, (
        "only the first chart is shown above the collapsed notes"
    )


def test_scores_are_drawn_over_a_numeric_axis(page):
    bleu = panel(page, "chart-batch-size-sequences-test-bleu")
    line = next(series for series in bleu["series"] if series["row"] == "ln")
    assert line["x"] == [8, 32] and line["at"] == ["batch_size=8", "batch_size=32"]
    assert line["mean"] == [11.5, 13.5]
    assert bleu["log"]["x"] and bleu["ticks"] == [8, 32]


def test_an_axis_of_words_has_no_line_and_the_page_says_if_curves_are_missing(tmp_path):
    grid = {"placement": {p: (f"placement={p}",) for p in ("pre", "post")}}
    of = study(grid=grid, description="`a<b` is bn; one ` alone.")
    made_of = [
        run(made("ln", 1, {"test/bleu": 1.0}, point=p), "ln", 1, f"placement={p}")
        for p in ("pre", "post")
    ]
    text = page_of(publish(tmp_path, of, "smoke", made_of), of)
    drawn = panel(text, "chart-placement-test-bleu")
    assert not drawn["joined"] and drawn["names"] == ["pre", "post"] and len(text) < 100_000
    assert '<p class="lead"><code>a&lt;b</code> is bn; one ` alone.</p>' in text
    read = Text(text)
    assert "training time, all runs 50 s" in read.text
    assert "published without the logged rows of its runs" in read.text
    assert "normlab study publish norms scale=smoke" in read.text


def test_markup_in_names_and_texts_is_escaped(tmp_path):
    name = "<b>&\"'</script><img src=x onerror=alert(1)>"
    figures = {name: {"test/bleu": "<u>"}}
    of = study(rows={name: ("norm=ln",)}, table="A < B", description="<i>", article_values=figures)
    text = published(tmp_path, of, {name: 1.0}).read_text()
    read = Text(text)
    assert not {"b", "i", "u", "img"} & {tag for tag, _ in read.tags}
    assert read.rows("results")[1][0] == name and "A < B" in read.text
    assert [look["name"] for look in charts(text)["looks"]] == [name]


def test_the_page_is_reproducible_and_every_run_links_to_its_record(page, tmp_path):
    path = published(tmp_path, sized(), LEVELS)
    assert path.read_text() == page and stale(rendered(sized(), path.parent)) == []
    read = Text(page)
    records = [link for link in read.links if link.endswith("records.jsonl")]
    assert len(records) == 8 == len(read.rows("runs")) - 1
    assert all((path.parent / link).is_file() for link in records)
    assert "training time, all runs 0.1 h" in read.text
    assert all((path.parent / name).is_file() for name in ("table.md", "table.tex", "table.csv"))
    recorded = dict(row for row in read.rows("pairs") if len(row) == 2)
    assert recorded["optim.lr"] == "0.0005" and recorded["point"] == "batch_size=32 batch_size=8"
