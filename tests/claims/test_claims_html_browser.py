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
    page.reload()
    assert shown(page) == [2], "the address keeps it"


def test_an_address_opens_its_claim_and_no_other(visit):
    page = visit(fragment="#claim-12")
    assert [is_open(page, n) for n in (1, 2, 3, 4, 12)] == [False, False, False, False, True]
    page.locator('input[value="contradicted"]').press("Space")
    assert shown(page) == [2]
    page.evaluate("location.hash = 'claim-3'")
    page.locator("#claim-3 .pieces").first.wait_for()
    assert shown(page) == [1, 2, 3, 4, 12], "a claim that was filtered out is shown again"


def test_nothing_is_wider_than_a_phone(visit):
    page = visit(360)
    page.locator("#all").click()
    assert page.evaluate("document.documentElement.scrollWidth") == 360
