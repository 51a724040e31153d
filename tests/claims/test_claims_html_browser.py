"""The page of the ledger in a real browser: found by keyboard, opened by address, on a phone."""

import pytest

from tests.claims.ledgers import made


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    written = tmp_path_factory.mktemp("ledger") / "claims.html"
    written.write_text(made(), encoding="utf-8")
    return written


def shown(page):
    """Return the numbers of the claims that are to be seen."""
    claims = page.locator(".claim").all()
    return [int(c.get_attribute("id").removeprefix("claim-")) for c in claims if c.is_visible()]


def is_open(page, number):
    return page.locator(f"#claim-{number} > details").evaluate("details => details.open")


def test_verdicts_and_documents_are_filtered_by_keyboard(visit):
    page = visit()
    assert shown(page) == [1, 2, 3, 4, 12]
    page.locator('input[value="contradicted"]').press("Space")
    assert shown(page) == [2]
    assert page.locator(".shown").inner_text() == "1 of 5 claims"
    page.locator('input[value="mixed"]').press("Space")
    assert shown(page) == [2, 3], "several verdicts add up"
    page.locator('input[value="D2"]').press("Space")
    assert shown(page) == [2], "a document narrows them down"
    for value in ("contradicted", "mixed", "D2"):
        page.locator(f'input[value="{value}"]').press("Space")
    assert shown(page) == [1, 2, 3, 4, 12]
    page.locator('input[value="D1"]').press("Space")
    assert shown(page) == [1], "one of its documents is enough"
    page.reload()
    assert shown(page) == [1], "the address keeps it"


def test_heads_sort_and_the_address_keeps_it(visit):
    page = visit(fragment="#claim-12")
    head = page.locator(".heads button").nth(4)
    head.press("Enter")
    verdicts = [each.inner_text() for each in page.locator(".claim .verdict").all()]
    assert verdicts == sorted(verdicts) and len(set(verdicts)) > 2
    head.press("Enter")
    page.reload()
    assert [each.inner_text() for each in page.locator(".claim .verdict").all()] == verdicts[::-1]
    assert is_open(page, 12)


def test_the_search_takes_all_words_in_any_case(visit):
    page = visit()
    search = page.locator('input[type="search"]')
    search.focus()
    page.keyboard.type("PICTURES")
    assert shown(page) == [3, 12]
    page.keyboard.type("  task")
    assert shown(page) == [12]
    page.keyboard.press("Enter")
    assert shown(page) == [12], "nothing is sent"
    search.fill("no such word")
    assert shown(page) == [] and page.locator(".empty").is_visible()
    page.locator("#clear").press("Enter")
    assert shown(page) == [1, 2, 3, 4, 12] and search.input_value() == ""
    assert page.locator(".empty").is_hidden()


def test_a_claim_opens_to_its_evidence_by_keyboard(visit):
    page = visit()
    evidence = page.locator("#claim-2 .pieces").first
    assert evidence.is_hidden()
    page.locator("#claim-2 summary").first.focus()
    page.keyboard.press("Enter")
    assert evidence.is_visible() and evidence.locator("a").first.is_visible()
    more = page.locator("#claim-2 .more")
    assert more.locator(".pieces").is_hidden()
    more.locator("summary").press("Enter")
    assert more.locator(".pieces").is_visible()
    page.locator("#claim-2 summary").first.press("Enter")
    assert evidence.is_hidden()


def test_the_keyboard_reaches_everything_in_order(visit):
    page = visit()
    reached = []
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                "(e => e.closest('.claim')?.id ?? (e.id || e.name || e.className))"
                "(document.activeElement)"
            )
        )
        if reached[-1] == "claim-12":
            break
    order = ["skip", "theme", "words", "verdict", "document", "all"]
    order += ["claim-1", "claim-2", "claim-3", "claim-4", "claim-12"]
    assert [name for name in dict.fromkeys(reached) if name in order] == order


def test_all_that_is_shown_opens_and_closes(visit):
    page = visit()
    page.locator('input[value="D0"]').press("Space")
    button = page.locator("#all")
    button.press("Enter")
    assert [is_open(page, n) for n in (1, 2, 3, 4, 12)] == [True, False, True, True, True]
    assert button.inner_text() == "Close all"
    button.press("Enter")
    assert not any(is_open(page, n) for n in (1, 2, 3, 4, 12))
    assert button.inner_text() == "Open all"


def test_an_address_opens_its_claim_and_no_other(visit):
    page = visit(fragment="#claim-12")
    assert [is_open(page, n) for n in (1, 2, 3, 4, 12)] == [False, False, False, False, True]
    page.locator('input[value="contradicted"]').press("Space")
    assert shown(page) == [2]
    page.evaluate("location.hash = 'claim-3'")
    page.locator("#claim-3 .pieces").first.wait_for()
    assert shown(page) == [1, 2, 3, 4, 12], "a claim that was filtered out is shown again"
    top = page.locator("#claim-3").bounding_box()["y"]
    bar = page.locator("#choose").bounding_box()
    assert top >= bar["y"] + bar["height"] or top >= 0 > bar["y"], "not under the filters"


def test_an_odd_address_opens_nothing(visit):
    page = visit(fragment="#claim-99%22]")
    assert not any(is_open(page, n) for n in (1, 2, 3, 4, 12))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_verdicts_stand_out_from_the_paper(visit, scheme):
    page = visit(scheme=scheme)
    ratios = page.evaluate(
        """() => {
          const drawing = { willReadFrequently: true };
          const canvas = document.createElement("canvas").getContext("2d", drawing);
          const light = (colour) => {
            canvas.fillStyle = colour;
            canvas.fillRect(0, 0, 1, 1);
            const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((v) => {
              const c = v / 255;
              return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
            });
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          const paper = light(getComputedStyle(document.body).backgroundColor);
          return [...document.querySelectorAll(".claim .verdict .word")].flatMap((word) =>
            [word, word.querySelector("svg")].map((element) => {
              const ink = light(getComputedStyle(element).color);
              return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
            }));
        }"""
    )
    assert len(ratios) == 10 and min(ratios) > 3 and min(ratios[::2]) > 4.5


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_wider_than_the_window(visit, width):
    page = visit(width)
    page.locator("#all").click()
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_print_opens_what_is_shown_and_nothing_stays_open(visit):
    page = visit()
    page.locator('input[value="D2"]').press("Space")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert is_open(page, 2) and not is_open(page, 1)
    assert page.locator("#choose").is_hidden()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert not is_open(page, 2)


def test_without_scripts_everything_can_be_read(visit):
    page = visit(scripts=False)
    assert page.locator("#choose").is_hidden() and page.locator("#theme").is_hidden()
    page.locator("#claim-2 summary").first.press("Enter")
    assert page.locator("#claim-2 .pieces").first.is_visible()
