"""The page of a study in a real browser: from disk, by keyboard, in dark mode, on a phone."""

import csv
import io
from itertools import pairwise

import pytest

from tests.reports.handmade import published, sized

ODD = '<b>"x"</b>'
LEVELS = {"ln": 1.0, "bn": 3.0, ODD: 2.0}
LOSS = "#chart-training-step-train-loss"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    of = sized(rows={name: (f"norm={n}",) for n, name in enumerate(LEVELS)})
    norms = {"bn": "bn", ODD: "gn"}
    return published(tmp_path_factory.mktemp("page"), of, LEVELS, norms=norms)


def drawn(page, figure=LOSS, lines=None):
    """Scroll to a chart, wait until it shows this many lines, and return it."""
    found = page.locator(figure)
    found.scroll_into_view_if_needed()
    wanted = "[data-lines]" if lines is None else f'[data-lines="{lines}"]'
    page.locator(f"{figure}{wanted} .plot svg").wait_for()
    return found


def strokes(figure):
    """Return the colours of a chart's lines, one per line and facet."""
    paths = figure.locator("path.line").all()
    return [path.evaluate("path => getComputedStyle(path).stroke") for path in paths]


def test_every_chart_is_drawn(visit):
    page = visit()
    figures = page.locator("figure.chart")
    assert figures.count() == 7
    assert sum(figure.is_visible() for figure in figures.all()) <= 4, "the others are collapsed"
    for folded in page.locator("details:has(figure.chart)").all():
        folded.locator("summary").first.press("Enter")
    for n in range(figures.count()):
        figure = drawn(page, f"#{figures.nth(n).get_attribute('id')}")
        assert figure.locator("path.line").count() >= 3
    assert len(set(strokes(drawn(page)))) == 3, "one colour per norm"
    assert drawn(page, LOSS, 6).locator(".plot svg").count() == 1


def test_a_filter_by_keyboard_changes_charts_and_tables(visit):
    page = visit()
    first = strokes(drawn(page, LOSS, 6))
    box = page.locator('input[name="row"][value="bn"]')
    box.focus()
    page.keyboard.press("Space")
    left = strokes(drawn(page, LOSS, 4))
    assert len(first) == 6 and len(left) == 4 and set(left) < set(first), (
        "the remaining lines keep their colours"
    )
    assert page.locator('.results tr[data-row="bn"]').first.is_hidden()
    assert page.locator('.results tr[data-row="ln"]').first.is_visible()
    page.locator('input[name="at"][value="batch_size=32"]').press("Space")
    drawn(page, LOSS, 2)
    for number in (0, 2):
        page.locator('input[name="row"]').nth(number).press("Space")
    page.locator(LOSS).scroll_into_view_if_needed()
    page.locator(f"{LOSS} .none").wait_for()


def test_exact_values_are_shown_by_hovering_and_as_a_table(visit):
    page = visit()
    figure = drawn(page)
    area = figure.locator(".plot svg").bounding_box()
    tooltip = page.locator(".tip")
    for across in range(60, 240, 5):
        page.mouse.move(area["x"] + across, area["y"] + 60)
        if tooltip.is_visible():
            break
    said = tooltip.inner_text()
    assert "setting" in said and "mean" in said and "seeds" in said
    assert tooltip.locator("b").count() == 0, "names are not parsed as markup"
    figure.locator("summary").focus()
    page.keyboard.press("Enter")
    table = figure.locator(".values table")
    table.wait_for()
    head = table.locator("thead th").all_inner_texts()
    assert head[0] == "training step" and f"{ODD} batch size 8" in head and len(head) == 7
    last = table.locator("tbody tr").last
    assert last.locator("th").inner_text() == "100"
    assert last.locator("td").first.inner_text() == "1.15674 (1.10674 to 1.20674)"


def test_the_page_fits_a_phone_and_describes_its_charts_in_words_without_scripts(visit):
    page = visit(360)
    drawn(page)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    for column in range(2):
        score = page.locator('.results tr[data-row="bn"]').last.locator("td").nth(column)
        place = score.bounding_box()
        assert place["x"] > 0 and place["x"] + place["width"] <= 360, "scores need no scrolling"
    page = visit(scripts=False)
    assert page.locator("table.results").is_visible() and page.locator("#filters").is_hidden()
    assert "ln, batch size 8: 1.157 at 100" in page.locator(f"{LOSS} .summary").inner_text()


def first_cells(page, table):
    cells = page.locator(f"table.{table} tbody tr:not(.point):visible > :first-child")
    return cells.all_inner_texts()


def test_column_headers_sort_the_rows_of_each_point(visit):
    page = visit()
    assert first_cells(page, "results") == [*LEVELS, *LEVELS]
    loss = page.locator("table.results th", has_text="valid/loss")
    loss.locator("button").focus()
    page.keyboard.press("Enter")
    assert loss.get_attribute("aria-sort") == "ascending"
    assert first_cells(page, "results") == ["ln", ODD, "bn", "ln", ODD, "bn"]
    loss.locator("button").click()
    assert loss.get_attribute("aria-sort") == "descending"
    backwards = ["bn", ODD, "ln", "bn", ODD, "ln"]
    assert first_cells(page, "results") == backwards, "each point keeps its title above its rows"
    loss.locator("button").click()
    assert loss.get_attribute("aria-sort") is None


def test_the_url_keeps_the_sort_order_and_the_filter(visit):
    page = visit()
    loss = page.locator("table.results th", has_text="valid/loss").locator("button")
    loss.click()
    loss.click()
    page.locator('input[name="row"][value="ln"]').press("Space")
    page.reload()
    assert first_cells(page, "results") == ["bn", ODD, "bn", ODD]
    assert not page.locator('input[name="row"][value="ln"]').is_checked()


def test_charts_and_tables_can_be_downloaded(visit):
    page = visit()
    page.locator('input[name="row"][value="ln"]').press("Space")

    def downloaded(button):
        with page.expect_download() as found:
            button.click()
        return found.value.path().read_text("utf-8")

    chart = drawn(page, LOSS, 4)
    svg = downloaded(chart.locator("button", has_text="SVG"))
    assert svg.startswith("<svg") and "var(" not in svg and "#ffffff" in svg and "<path" in svg
    rows = list(csv.reader(io.StringIO(downloaded(chart.locator("button", has_text="CSV")))))
    assert rows[0] == ["setting", "at", "training step", "mean", "lowest", "highest", "seeds"]
    assert {row[0] for row in rows[1:]} == {"bn", ODD}
    last = next(row for row in rows if row[:3] == ["bn", "batch size 32", "100"])
    assert last[3:] == ["3.35674", "3.30674", "3.40674", "2"]
    tables = page.locator('button[aria-label="Download Table of results as CSV"]')
    head, *body = csv.reader(io.StringIO(downloaded(tables)))
    assert head[0] == "setting" and head[-1] == "at" and len(body) == 4
    assert body[0][0] == "bn" and body[1][0] == ODD and body[0][-1] == "batch size 8"


def ticks(figure):
    """Return the labels along the first horizontal axis of a chart, as numbers."""
    texts = figure.locator(".axis").nth(1).locator("text").all_text_contents()
    return [float(text.replace(",", "")) for text in texts if text[0].isdigit()]


def line_of(figure):
    return figure.locator("path.line").first.get_attribute("d")


def test_smoothing_also_shows_the_raw_line_and_is_kept_in_the_address(visit):
    page = visit()
    before = line_of(drawn(page, LOSS, 6))
    assert page.locator(f"{LOSS} path.raw").count() == 0
    page.locator('select[name="smoothing"]').select_option("0.9")
    figure = page.locator(LOSS)
    assert line_of(figure) != before and figure.locator("path.raw").count() == 6
    assert figure.locator("path.raw").first.get_attribute("d") == before
    scores = drawn(page, "#chart-batch-size-sequences-test-bleu")
    assert scores.locator("path.raw").count() == 0, "scores over batch sizes are not smoothed"
    page.reload()
    drawn(page)
    assert page.locator(f"{LOSS} path.raw").count() == 6


def test_the_vertical_axis_is_logarithmic_or_linear_on_request(visit):
    page = visit()

    def gaps(axis):
        """Return the distances between marks that are one unit apart, rounded to two pixels."""
        page.locator('select[name="axis"]').select_option(axis)
        marks = drawn(page, LOSS, 6).locator(".axis").first.locator("text[x]").all()
        levels = [float(mark.get_attribute("y")) for mark in marks]
        return {round((a - b) / 2) for a, b in pairwise(levels)}

    assert len(gaps("linear")) == 1 < len(gaps("log"))


def test_a_drag_zooms_and_a_double_click_resets(visit):
    page = visit()
    figure = drawn(page, LOSS, 6)
    whole = ticks(figure)
    reset = figure.locator("button.whole")
    assert whole[0] == 0 and whole[-1] == 100 and reset.is_hidden()
    area = figure.locator(".plot svg").bounding_box()
    y = area["y"] + 80
    page.mouse.move(area["x"] + 200, y)
    page.mouse.down()
    page.mouse.move(area["x"] + 300, y, steps=4)
    assert figure.locator("rect.selection").is_visible()
    page.mouse.up()
    part = ticks(figure)
    assert part[0] > 0 and part[-1] < 100 and reset.is_visible()
    assert figure.locator("rect.selection").count() == 0
    page.mouse.dblclick(area["x"] + 200, y)
    assert ticks(figure) == whole and reset.is_hidden()


def test_keys_zoom_move_and_reset(visit):
    page = visit()
    figure = drawn(page, LOSS, 6)
    whole = ticks(figure)
    figure.locator(".plot").focus()
    page.keyboard.press("+")
    middle = ticks(figure)
    assert middle[0] >= 25 and middle[-1] <= 75
    page.keyboard.press("ArrowRight")
    assert ticks(figure)[-1] > 75
    page.keyboard.press("0")
    assert ticks(figure) == whole
    page.keyboard.press("+")
    figure.locator("button.whole").click()
    assert ticks(figure) == whole


def test_notes_are_collapsed_and_a_hint_says_that_a_table_scrolls_sideways(visit):
    page = visit()
    notes = page.locator("#results details.more")
    assert notes.locator("li", has_text="data: ").is_hidden()
    notes.locator("summary").press("Enter")
    assert notes.locator("li", has_text="data: ").is_visible()
    page.locator("#runs .hint", has_text="scroll sideways").wait_for()
    page.locator("#results .hint").wait_for(state="hidden")  # the table of results fits
    page = visit(390)
    hint, box = page.locator("#results .hint"), page.get_by_role("region", name="Table of results")
    page.locator("#results .hint", has_text="more column").wait_for()
    box.evaluate("box => box.scrollTo(box.scrollWidth, 0)")
    pytest.importorskip("playwright.sync_api").expect(hint).to_have_text("")
    assert hint.is_visible(), "the layout does not jump at the end"
