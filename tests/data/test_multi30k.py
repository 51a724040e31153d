"""Multi30k in its published layouts."""

import gzip
import json

import pytest

from normlab.data import multi30k
from normlab.data.corpus import ParallelText
from tests.data.translation_archives import captions, corpus


@pytest.mark.parametrize("build", [corpus, captions])
def test_languages_other_than_german_and_english_are_refused(tmp_path, build):
    with pytest.raises(ValueError, match="target_language must be de and en"):
        build(tmp_path, target_language="fr")


def test_multi30k_from_the_hub_is_read_from_one_column_per_language(tmp_path, monkeypatch):
    for split in ("train", "validation", "test"):
        lines = (json.dumps({"en": f"{row} en", "de": row}) + "\n" for row in (f"{split} ", "b\nc"))
        (tmp_path / f"{split}.jsonl").write_text("".join(lines))
    monkeypatch.setattr(multi30k, "HUB", str(tmp_path))
    found = captions(None).splits
    assert list(found) == ["train", "valid", "test"]
    assert found["valid"] == ParallelText(["validation", "b c"], ["validation  en", "b c en"])


def test_only_the_published_text_is_labelled_multi30k(tmp_path, normlab_data):
    origin = normlab_data / "multi30k"
    published = captions(origin)
    assert published.label == "Multi30k"
    assert captions(normlab_data).key() == published.key()
    back = captions(origin, source_language="en", target_language="de")
    assert back.label == "Multi30k" and back.key() != published.key()
    assert list(published.splits) == ["train", "valid", "test", "test_2017"]
    for path in origin.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    text = gzip.decompress((tmp_path / "val.en.gz").read_bytes()).replace(b"man", b"men")
    (tmp_path / "val.en.gz").write_bytes(gzip.compress(text))
    assert captions(tmp_path).label == "Multi30k, not the published text"
    (tmp_path / "train.de.gz").unlink()
    with pytest.raises(ValueError, match=r"neither train\.de"):
        captions(tmp_path).read()
