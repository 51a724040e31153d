"""The interactive page in a real browser: its numbers, keys and size."""

import re
from itertools import combinations, product

import pytest
import torch

from normlab.articles.article import PIECES
from normlab.claims.in_words.language import LANGUAGES
from normlab.inspection.examples.page_examples import norm_of_width
from normlab.inspection.norm.norm_calls import run

SMALLEST, PHONE = 1e-6, 390
OUTPUTS = """([name, norm, x, real]) => {
  const found = DATA.pieces[name].norms[norm];
  return normalized(x, found, real);
}"""
SHOWN = "root => [...root.querySelectorAll('[data-output]')].map(e => Number(e.dataset.output))"
SENTENCE = """options => {
  const { x, y } = sentenceOf(options);
  const { logits, weights, slopes } = attention(y, options.width, false);
  return { x, y, logits, weights, slopes };
}"""
LINES = """() => Object.fromEntries([...document.querySelectorAll('#legend .said')].map(
  said => [said.textContent, getComputedStyle(said).textDecorationStyle]))"""


def piece(page, name):
    """Open a live piece without making a guess, and return it."""
    page.evaluate("name => { location.hash = name; }", name)
    box = page.locator(f"#{name}")
    box.locator(".skip-question").click()
    return box


def by_norm(name, x, real=None):
    x = torch.tensor(x, dtype=torch.float64)
    return run(norm_of_width(name, x.shape[-1]).train(), x, real)


def test_the_norms_of_the_page_match_make_norm(page, data):
    tensor, marks = data["pieces"]["tensor"], data["pieces"]["marks"]
    cases = [("tensor", norm, tensor["x"], None) for norm in tensor["norms"]]
    cases += [("marks", norm, [marks["x"]], None) for norm in marks["norms"]]
    for case in cases:
        found = torch.tensor(page.evaluate(OUTPUTS, list(case)), dtype=torch.float64)
        assert (found - by_norm(case[1], case[2])).abs().max() < SMALLEST, case[:2]


def test_norms_on_padded_batches_of_the_page_match_make_norm(page, data):
    padded = data["pieces"]["padding"]
    batches = [[*others, 2] for n in range(3) for others in combinations((0, 1), n)]
    batch = "options => { const { x, real, y } = batchOf(options); return { x, real, y }; }"
    for sentences in batches:
        for name in padded["norms"]:
            for count in (False, True):
                options = {"sentences": sentences, "norm": name, "count": count}
                made = page.evaluate(batch, options)
                real = torch.tensor(made["real"])
                x = torch.tensor(made["x"], dtype=torch.float64)
                settings = {"padding": "include"} if count and name.startswith("bn") else {}
                wanted = run(norm_of_width(name, x.shape[-1], **settings).train(), x, real)
                off = (torch.tensor(made["y"], dtype=torch.float64) - wanted)[real].abs().max()
                assert off < SMALLEST, options


def test_words_and_attention_of_the_page_match_torch(page):
    for width, norm in product((4, 64), ("none", "ln", "rms", "bn")):
        options = {"value": 999, "width": width, "norm": norm}
        found = {
            name: torch.tensor(values, dtype=torch.float64)
            for name, values in page.evaluate(SENTENCE, options).items()
        }
        y = by_norm(norm, found["x"][None].tolist())[0]
        weights = (y @ y.T / width**0.5).softmax(-1)
        assert (found["y"] - y).abs().max() < SMALLEST, options
        assert (found["weights"] - weights).abs().max() < SMALLEST, options
        slopes = 1 - weights.square().sum(-1)
        assert (found["slopes"] - slopes).abs().max() < SMALLEST, options


def test_each_piece_starts_with_a_question_and_the_guess_is_marked(page):
    for name in PIECES:
        page.evaluate("name => { location.hash = name; }", name)
        box = page.locator(f"#{name}")
        assert box.locator(".live").count() == 0
        right = page.evaluate("name => PIECES[name].right()", name)
        options = box.locator(".options button")
        options.nth((right + 1) % options.count()).click()
        assert box.locator(".live").count() == 1
        assert box.locator(".wrong").count() == box.locator(".right").count() == 1
        assert "NaN" not in box.inner_text() and "undefined" not in box.inner_text()
    assert page.locator("#pieces li").all_inner_texts()[0].endswith("✗")


def test_mouse_and_keys_show_the_pool_mean_and_variance_of_a_tensor_cell(page, data):
    x = torch.tensor(data["pieces"]["tensor"]["x"], dtype=torch.float64)
    box = piece(page, "tensor")
    box.locator('[data-name="ln"]').click()
    box.locator('[data-cell="1,2,3"]').hover()
    moments = box.locator("[data-mean]")
    assert float(moments.get_attribute("data-mean")) == float(x[1, 2].mean())
    assert box.locator(".pooled").count() == 4
    box.locator('[data-cell="1,2,3"]').focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.dataset.cell") == "1,1,2"
    found = float(box.locator("[data-variance]").get_attribute("data-variance"))
    assert found == pytest.approx(float(x[1, 1].var(correction=0)))


def test_editing_the_999_keeps_the_focus_and_changes_the_attention(page):
    box = piece(page, "words")
    box.locator('.choice [data-name="none"]').click()
    field = box.locator('[data-name="value"]')
    before = box.evaluate(SHOWN)
    field.click()
    for key in ("End", "Backspace", "Backspace", "5"):
        page.keyboard.press(key)
    assert field.input_value() == "95"
    assert page.evaluate("document.activeElement.dataset.name") == "value"
    after = box.evaluate(SHOWN)
    assert before[2] == 999 and after[2] == 95
    slope = box.locator("[data-slope]").first
    assert float(slope.get_attribute("data-slope")) < SMALLEST


def test_sentences_enter_the_batch_by_drag_or_key_press(page):
    box = piece(page, "padding")
    moved = lambda: float(box.locator("[data-moved]").get_attribute("data-moved"))  # noqa: E731
    two = moved()
    box.locator(".out .chip").drag_to(box.locator(".shelf.in"))
    assert box.locator(".in .chip").count() == 3 and moved() != two
    box.locator(".in .chip").first.focus()
    page.keyboard.press("Enter")
    assert box.locator(".in .chip").count() == 2 and moved() == pytest.approx(two)
    box.locator('[data-name="ln"]').click()
    assert moved() < SMALLEST


def test_padding_in_the_statistics_changes_every_real_word_and_is_marked(page):
    box = piece(page, "padding")
    moved = lambda: float(box.locator("[data-moved]").get_attribute("data-moved"))  # noqa: E731
    left_out = moved()
    box.locator('[data-name="count"]').check()
    assert moved() != pytest.approx(left_out)
    pads = box.locator("td.pad").count()
    assert box.locator("td.pad.counted").count() == pads > 0
    assert box.locator("td.moved").count() == box.locator("td.real").count()
    box.locator('[data-name="ln"]').click()
    assert moved() < SMALLEST and box.locator("td.moved").count() == 0
    box.locator('[data-name="count"]').uncheck()


def test_the_line_style_differs_by_verdict(page):
    lines = page.evaluate(LINES)
    small = lines.pop("does not hold (the difference is too small)")
    assert small == lines["does not hold"], "neither holds, so the style is the same"
    assert len(set(lines.values())) == len(lines) == 5


def test_sentences_can_be_opened_and_closed_by_keyboard(page):
    first = page.locator("#content .opener").first
    first.focus()
    page.keyboard.press("Enter")
    explanation = page.locator("#content .explanation").first
    assert explanation.is_visible() and "normlab claims" in explanation.inner_text()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    assert page.locator("#content .explanation:visible").count() == 2
    page.keyboard.press("Space")
    assert page.locator("#content .explanation:visible").count() == 1
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    assert page.locator("#content .explanation:visible").count() == 1
    page.keyboard.press("ArrowUp")
    page.keyboard.press(
        "ArrowRight"
    )  # an open explanation closes, and that of the next sentence opens
    shown = page.locator("#content .explanation:visible")
    assert shown.count() == 1 and shown.get_attribute("id") != explanation.get_attribute("id")
    page.locator('[data-name="contradicted"]').press("Enter")
    faded = page.locator(".passage.supported > .opener").first
    assert faded.evaluate("e => getComputedStyle(e).opacity") != "1"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_articles_fit_a_phone_in_both_languages(visit, data, scheme):
    page = visit(PHONE, scheme=scheme)
    words = [language.verdicts["contradicted"] for language in LANGUAGES.values()]
    for number, language in enumerate(("zh-CN", "en")):
        page.locator(f'[data-language="{number}"]').click()
        assert page.evaluate("document.documentElement.lang") == language
        assert page.locator("#legend").inner_text().split("\n").count(words[1 - number]) == 1
        for article in data["articles"]:
            page.evaluate("id => { location.hash = id; }", article["id"])
            page.locator("#content .opener").first.click()
            while page.locator(".skip-question").count():
                page.locator(".skip-question").first.click()
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", colour))) < 200) == (scheme == "dark")


def test_the_language_is_remembered_and_can_be_set_in_the_address(visit):
    page = visit(fragment="#zh/words")
    language = "document.documentElement.lang"
    assert page.evaluate(language) == "zh-CN"
    page.locator('[data-language="1"]').click()
    assert page.evaluate("location.hash") == "#en/words"
    page.locator('[data-language="0"]').click()
    page.goto(page.url.partition("#")[0])
    assert page.evaluate(language) == "zh-CN"


def test_the_more_button_shows_the_remaining_norms(page, data):
    box = piece(page, "tensor")
    buttons = box.locator(".live .choice [aria-pressed]")
    assert buttons.evaluate_all("all => all.map(e => e.dataset.name)") == ["bn", "ln", "in", "gn"]
    box.locator(".live .choice button").last.press("Enter")
    assert buttons.count() == len(data["pieces"]["tensor"]["norms"])


def test_a_truncated_table_has_a_hint_and_marks_of_the_article_are_labeled(visit):
    for width, cut in ((PHONE, True), (1280, False)):
        page = visit(width)
        table = page.locator(".tabled", has_text="✅").last
        table.scroll_into_view_if_needed()
        assert table.locator(".hint").is_visible() == cut
        assert table.locator(".goes-on").count() == cut
        assert table.locator(".own").count() > 8
        assert "article's own" in table.inner_text()


def test_a_grade_explains_its_letter(page):
    for button in page.locator("#content .passage > .opener").all()[:8]:
        button.click()
    grade = page.locator(".grade summary").first
    meaning = grade.get_attribute("title")
    grade.click()
    assert meaning and meaning in page.locator(".grade").first.inner_text()


def test_in_chinese_the_norms_have_chinese_names(visit):
    page = visit()
    page.locator('[data-language="0"]').click()
    box = piece(page, "tensor")
    box.locator(".live .choice button").last.click()
    names = box.locator(".live .choice button").all_inner_texts()
    assert {"批归一化", "按位置 BN", "层归一化", "RMSNorm"} <= set(names)
    assert not any(name.islower() for name in names), "names from configs/norm"


def test_the_hint_that_a_table_goes_on_is_above_it(visit):
    table = visit(PHONE).locator(".tabled", has_text="✅").last
    table.scroll_into_view_if_needed()
    hint, box = (table.locator(each).bounding_box() for each in (".hint", ".scroll"))
    assert hint["y"] + hint["height"] <= box["y"] + 1
