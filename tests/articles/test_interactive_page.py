"""The interactive page in a real browser: its numbers, verdicts, keys and size."""

import json
import re
import sys
import webbrowser
from itertools import combinations, product

import pytest
import torch
import yaml

from normlab.articles import pages
from normlab.articles.article import PIECES, load_all
from normlab.articles.language import LANGUAGES
from normlab.articles.pages import PLAY, play_page
from normlab.cli import main
from normlab.commands import claims
from normlab.config.folders import CONFIG_DIR
from normlab.inspection.examples.page_examples import norm_of_width
from normlab.inspection.norm.norm_calls import run
from tests.docs.pages import PAGES

ROOT = CONFIG_DIR.parent
SMALLEST, PHONE = 1e-6, 390
TYPED = {
    passage.command
    for article in load_all(CONFIG_DIR / "article").values()
    for section in article.sections
    for passage in section.body
    if passage.command
}
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


@pytest.fixture(scope="module")
def path():
    return PLAY


@pytest.fixture(scope="module")
def data():
    text = re.search(r'id="data">(.*?)</script>', PLAY.read_text("utf-8"), re.DOTALL)
    page = json.loads(text[1])
    explanations = [named(page, kind, values) for kind, *values in page["explanations"]]
    return {**page, "explanations": explanations}


def named(page, kind, values):
    """Return the values of a row by column name, as the page's script does."""
    return {"kind": kind, **dict(zip(page["columns"][kind], values, strict=False))}


@pytest.fixture
def page(visit):
    return visit()


def piece(page, name):
    """Open a live piece without making a guess, and return it."""
    page.evaluate("name => { location.hash = name; }", name)
    box = page.locator(f"#{name}")
    box.locator(".skip-question").click()
    return box


def by_norm(name, x, real=None):
    x = torch.tensor(x, dtype=torch.float64)
    return run(norm_of_width(name, x.shape[-1]).train(), x, real)


def test_the_committed_interactive_page_is_up_to_date_and_below_250_kb():
    assert PLAY.read_text("utf-8") == play_page(ROOT / "results"), "run: python scripts/blocks.py"
    assert PLAY.stat().st_size < 250_000
    assert "\n*, ::before, ::after {" in PLAY.read_text("utf-8"), "a CSS rule is not a comment"


def test_every_piece_is_in_an_article_and_every_text_in_both_languages(data):
    bodies = [s["body"] for article in data["articles"] for s in article["sections"]]
    passages = [passage for body in bodies for passage in body]
    live = [each["piece"] for each in passages if "piece" in each]
    assert sorted(live) == sorted(PIECES)
    texts = [each[0] for each in passages if isinstance(each, list)]
    chinese = re.compile("[\u4e00-\u9fff]")
    assert all(all(text) for text in texts) and len(texts) > 150
    once = [re.sub("[我爱吃]", "", text[0]) for text in texts if len(text) == 1]
    assert not any(map(chinese.search, once))

    def check(node, key):
        if isinstance(node, dict):
            for name, each in node.items():
                check(each, f"{key}.{name}")
        elif isinstance(node[0], list):
            for each in node:
                check(each, key)
        else:
            assert len(node) == 2 and all(isinstance(text, str) for text in node), key
            names = [sorted(re.findall(r"\{\w+\}", text)) for text in node]
            assert names[0] == names[1], key
            assert not chinese.search(re.sub("[我爱吃]", "", node[1])), key

    words = ROOT / "normlab" / "articles" / "templates" / "page.yaml"
    check(yaml.safe_load(words.read_text("utf-8")), "words")


def test_verdicts_in_explanations_match_the_ledger(data):
    ledger = json.loads((ROOT / "results" / "claims.json").read_text("utf-8"))
    known = {p["statement"]: p["verdict"] for claim in ledger for p in claim["parts"]}
    judged = [
        explanation
        for explanation in data["explanations"]
        if explanation["kind"] in ("check", "runs")
    ]
    parts = [explanation for explanation in judged if explanation["statement"][-1] in known]
    assert len(parts) > 80 and all(known[a["statement"][-1]] == a["verdict"] for a in parts)


def test_the_answer_of_a_claim_is_shown_where_half_of_its_parts_are_cited(data):
    body = [e for each in data["articles"] for section in each["sections"] for e in section["body"]]
    rows = [named(data, "sentence", each) for each in body if isinstance(each, list)]
    whole = {each["text"][-1]: each.get("claims", []) for each in rows}
    assert whole["BERT-base has 110 million parameters."] == []  # one part of ten
    assert whole["Stable with a batch of 1, the same in training and inference."] == [15]
    shown = {claim for each in whole.values() for claim in each}
    assert shown <= {int(claim) for claim in data["claims"]}


def test_explanations_of_checks_and_sources_have_chinese_text(data):
    explanations = [each for each in data["explanations"] if each["kind"] in ("check", "sources")]
    assert len(explanations) > 60
    for explanation in explanations:
        findings = [data["findings"][number] for number in explanation.get("findings", ())]
        texts = [
            each[0]
            for each in (explanation["statement"], explanation.get("finding", [""]), *findings)
        ]
        assert re.search("[\u4e00-\u9fff]", "".join(texts)), explanation


def test_explanations_of_unmeasured_parts_show_only_the_command(data):
    commands = [each["command"] for each in data["explanations"] if "command" in each]
    assert len(commands) > 5 and not any("(" in each for each in commands)


def test_grades_and_counts_of_seeds_are_in_chinese(data):
    assert all(zh != en or en == "D" for zh, en in data["grades"])
    assert not any("layers" in zh or "training" in zh for zh, _ in data["grades"])
    counts = [
        a["finding"]
        for a in data["explanations"]
        if "seeds that train" in a.get("finding", [""])[-1]
    ]
    assert len(counts) > 5 and all(zh.startswith("训练成功的种子数：") for zh, _ in counts)


def test_findings_name_their_quantity_and_small_differences_mention_the_margin(data):
    from_runs = [
        each for each in data["explanations"] if each["kind"] in ("runs", "timing", "scores")
    ]
    assert len(from_runs) > 100
    words = ("在界限", "之内，差别太小，不算数"), ("within the margin", "too small to count")
    for explanation in from_runs:
        for text, inside in zip(explanation["finding"], words, strict=True):
            assert explanation["kind"] == "scores" or not re.match(r"\W?\d", text)
            if explanation.get("verdict") == "no difference":
                assert all(each in text for each in inside), text
        zh, en = explanation["finding"]
        assert not re.search(r"\b[a-z]{2,} [a-z]{3,}\b(?![=.])", zh), zh
        assert not re.search("[\u4e00-\u9fff]", en), en


def test_negative_numbers_have_a_typographic_minus_sign(page):
    text = page.evaluate("JSON.stringify([DATA.explanations, DATA.findings, DATA.articles])")
    assert "\u2212" in text and not re.search(r"[\s(\[（]-\d", re.sub("`[^`]*`", "", text))


def test_commands_to_try_run_or_are_in_a_tested_page(capsys):
    pages = "".join(path.read_text("utf-8") for path in PAGES)
    for command in sorted(TYPED):
        program, verb, *words = command.split()
        assert program == "normlab"
        assert command in pages or (verb == "explain" and main([verb, *words]) == 0), command
    capsys.readouterr()


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


def test_counted_padding_changes_every_real_word_and_is_marked(page):
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


def test_documents_html_opens_the_page_on_a_terminal_and_prints_it_in_a_pipe(capsys, monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    assert main(["documents", "--html"]) == 0
    assert capsys.readouterr().out.startswith("<!doctype html>") and not opened
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert main(["documents", "--html"]) == 0
    assert opened == [PLAY.as_uri()] and capsys.readouterr().out == f"{PLAY}\n"
    assert main(["documents"]) == 0 and "normlab documents --html" in capsys.readouterr().out


def test_writing_the_ledger_also_updates_the_pages_made_from_it(tmp_path, monkeypatch, capsys):
    ledger, page = tmp_path / "claims.json", tmp_path / "index.html"
    page.write_text("old")
    monkeypatch.setattr(claims, "RESULTS", tmp_path)
    monkeypatch.setattr(pages, "PLAY", page)
    for made in ("play_page", "sentences_page", "advice"):
        monkeypatch.setattr(pages, made, lambda results: (results / "claims.json").read_text())
    claims._write({ledger: "new"}, tmp_path)
    written = capsys.readouterr().out
    for path in (page, tmp_path / "sentences.md", tmp_path / "which_norm.md"):
        assert path.read_text() == "new" and f"wrote {path}" in written
