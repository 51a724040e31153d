"""The plotting library of pages is kept in the cache, and a damaged copy is not used."""

import pytest

from normlab.reports.html import page


@pytest.fixture
def kept(tmp_path, monkeypatch):
    monkeypatch.setenv("NORMLAB_CACHE", str(tmp_path))
    return tmp_path / "pages"


def test_the_library_is_put_together_once_and_a_damaged_copy_anew(kept, monkeypatch):
    import vl_convert

    made = []
    bundle = "/* é */ window.vega = 1;\n"
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda text: made.append(text) or bundle)
    assert page._bundle() == bundle and page._bundle() == bundle
    assert len(made) == 1
    (copy,) = kept.iterdir()
    copy.write_bytes(copy.read_bytes().replace(b"vega = 1", b"vega = 2"))
    assert page._bundle() == bundle and len(made) == 2
    copy.write_bytes(b"\xff")
    assert page._bundle() == bundle and len(made) == 3


def test_a_cache_that_cannot_be_written_stops_no_page(kept, monkeypatch):
    import vl_convert

    kept.write_text("a file where the folder would be")
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda text: "x")
    assert page._bundle() == "x"
