"""The picture is well formed, the same each time, marks what is pooled and keeps labels apart."""

from itertools import combinations
from xml.etree import ElementTree

import pytest

from normlab.explain.page import pages
from normlab.explain.svg import _CORNER, _WIDTH, _Block, labels, picture

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def explained():
    return pages()


def test_it_is_well_formed_and_says_what_it_shows(explained):
    root = ElementTree.fromstring(picture(explained))
    assert root.tag == f"{SVG}svg" and root.get("role") == "img"
    title, described = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert root.get("aria-labelledby") == f"{title.get('id')} {described.get('id')}"
    assert all(page.name in title.text and page.name in described.text for page in explained)
    assert len(root.findall(f"{SVG}g")) == len(explained)
    assert "prefers-color-scheme: dark" in root.find(f"{SVG}style").text


def test_the_same_pages_give_the_same_bytes(explained):
    names = ["ln", "bn"]
    assert picture(pages(names)) == picture(pages(names))
    assert picture(explained) == picture(explained)


def test_the_faces_that_show_carry_the_pool(explained):
    root = ElementTree.fromstring(picture(explained))
    for page, group in zip(explained, root.findall(f"{SVG}g"), strict=True):
        faces = [face.get("class").split() for face in group.findall(f"{SVG}polygon")]
        assert len(faces) == 2 * 4 + 2 * 3 + 3 * 4
        shown = {"top": 0, "left": 0, "right": 0}
        for _, side, kind in faces:
            shown[side] += kind in ("in", "at")
        pool = page.pooled
        assert shown == {
            "top": sum(t == 0 for _, t, _ in pool),
            "left": sum(d == 0 for _, _, d in pool),
            "right": sum(s == 0 for s, _, _ in pool),
        }
        assert sum(kind == "at" for *_, kind in faces) == 3


def test_labels_stand_apart_and_inside_their_panel(explained):
    for page in explained:
        block = _Block(_CORNER, page)
        found = [*labels(page), *block.ruler_labels()]
        for a, b in combinations(found, 2):
            left, top, right, bottom = a.box()
            other = b.box()
            apart = right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top
            assert apart, (page.name, a, b)
        for label in found:
            left, top, right, bottom = label.box()
            assert left >= 0 and right <= _WIDTH, (page.name, label)
        corners = [block.at(s, t, d) for s in (0, 2) for t in (0, 3) for d in (0, 4)]
        top, bottom = min(y for _, y in corners), max(y for _, y in corners)
        for label in labels(page):
            assert label.box()[3] < top or label.box()[1] > bottom, label
